"""YAML in, a spec or exact sentences out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hostprep.errors import UsageError
from hostprep.spec import checking
from hostprep.spec.loading import parse_spec
from hostprep.spec.model import DatasetSpec, Problem, RequirementSpec, Spec, SpecError, VolumeSpec
from hostprep.units import GIB, RATE_FORMS, SIZE_FORMS

EXAMPLE = """\
volumes:
  - path: /mnt/hostprep
    size: 30G          # or 40%
    owner: alice:ml
datasets:
  - name: cityscapes
    source: /srv/datasets/cityscapes
    volume: /mnt/hostprep      # or `to: /nvme/datasets`
    at_boot: true
requirements:
  - dataset: cityscapes
    samples_per_second: 1800
packages: [fio]
"""
VOLUME = "volumes: [{path: /v, size: 1G}]\n"


def parse(text: str | bytes) -> Spec:
    content = text.encode() if isinstance(text, str) else text
    return parse_spec(content, shown_path="h.yml", path="/srv/lab/h.yml")


def problems(text: str | bytes) -> list[str]:
    """Return the problems as ``line: key: message``."""
    with pytest.raises(SpecError) as caught:
        parse(text)
    return [f"{found.line}: {found.key}: {found.message}" for found in caught.value.problems]


def test_the_example_of_the_documentation() -> None:
    assert parse(EXAMPLE) == Spec(
        path="/srv/lab/h.yml",
        volumes=(VolumeSpec("/mnt/hostprep", "30G", owner="alice:ml"),),
        datasets=(
            DatasetSpec(
                "cityscapes", "/srv/datasets/cityscapes", volume="/mnt/hostprep", at_boot=True
            ),
        ),
        requirements=(RequirementSpec("cityscapes", samples_per_second=1800),),
        packages=("fio",),
    )


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing yet\n", "---\n", "\ufeff", "volumes:\n", "{}", "volumes: []"]
)
def test_an_empty_file_asks_for_nothing(text: str) -> None:
    spec = parse(text)
    assert spec == Spec("/srv/lab/h.yml")
    assert spec.blank == ("[" not in text and "{" not in text)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("mode: 0755", "mode", 0o755),
        ("mode: '1777'", "mode", 0o1777),
        ("mode: 0o700", "mode", 0o700),
        ("mode: 750", "mode", 0o750),
        ("owner: 1000:50", "owner", "1000:50"),  # base 60 to YAML 1.1
        ("owner: 1000", "owner", "1000"),
        ("owner: LAB\\alice:users", "owner", "LAB\\alice:users"),
        ("inodes: 5000000", "inodes", 5_000_000),
        ("huge: within_size", "huge", "within_size"),
        ("swap: yes", "swap", True),
        ("swap:", "swap", False),
    ],
)
def test_a_volumes_options(line: str, field: str, value: object) -> None:
    spec = parse(f"volumes:\n- path: /v\n  size: 1G\n  {line}\n")
    assert getattr(spec.volumes[0], field) == value


@pytest.mark.parametrize(
    ("size", "size_bytes"),
    [("30G", 30 * GIB), ("30GB", 30 * 10**9), ("1048576", 1048576), ("50%", 8 * GIB)],
)
def test_a_size_is_kept_as_written_and_known_in_bytes(size: str, size_bytes: int) -> None:
    (volume,) = parse(f"volumes: [{{path: /v, size: {size}}}]").volumes
    assert volume.size == size
    assert volume.size_bytes(ram_bytes=16 * GIB) == size_bytes


def test_a_percentage_without_the_ram_is_an_error() -> None:
    with pytest.raises(UsageError, match="a percentage"):
        VolumeSpec("/v", "40%").size_bytes()


def test_a_volumes_path_is_put_into_its_shortest_form_and_found_by_it() -> None:
    spec = parse(
        "volumes: [{path: //mnt/./v/, size: 1G}]\ndatasets: [{source: a, volume: /mnt/v/}]"
    )
    assert spec.volumes[0].path == spec.datasets[0].volume == spec.datasets[0].parent == "/mnt/v"
    assert spec.datasets[0].target == "/mnt/v/a"


@pytest.mark.parametrize(
    ("source", "path", "name"),
    [
        ("/srv/a/", "/srv/a", "a"),
        ("a", "/srv/lab/a", "a"),
        ("./sets/a", "/srv/lab/sets/a", "a"),
        ("../a", "/srv/a", "a"),
        ("../../../../a", "/a", "a"),
        (".", "/srv/lab", "lab"),
        ("..", "/srv", "srv"),
        ("2012", "/srv/lab/2012", "2012"),
        ("2012-01-01", "/srv/lab/2012-01-01", "2012-01-01"),
        ("'Kön & Co: α'", "/srv/lab/Kön & Co: α", "Kön & Co: α"),
    ],
)
def test_a_source_is_relative_to_the_file_and_gives_the_name(
    source: str, path: str, name: str
) -> None:
    (dataset,) = parse(f"datasets: [{{source: {source}, to: /nvme}}]").datasets
    assert (dataset.source, dataset.name, dataset.target) == (path, name, f"/nvme/{name}")


def test_a_directory_that_is_a_declared_volume_is_that_volume() -> None:
    spec = parse("volumes: [{path: /mnt/v, size: 1G}]\ndatasets: [{source: /a, to: /mnt/v/}]")
    assert (spec.datasets[0].volume, spec.datasets[0].to) == ("/mnt/v", None)
    assert spec.datasets[0].target == "/mnt/v/a"


def test_one_name_may_be_staged_to_two_places_and_one_requirement_covers_both() -> None:
    spec = parse(
        VOLUME
        + "datasets: [{source: /a, volume: /v}, {source: /a, to: /nvme}]\n"
        + "requirements: [{dataset: a, samples_per_second: 1e3, bytes_per_second: 400MB/s}]"
    )
    assert [dataset.target for dataset in spec.datasets] == ["/v/a", "/nvme/a"]
    assert spec.requirements == (RequirementSpec("a", 1000.0, 400_000_000),)


def test_a_source_may_be_the_copy_of_another_data_set() -> None:
    spec = parse(
        "volumes: [{path: /m, size: 1G}]\n"
        "datasets:\n- {source: /nvme/x/part, volume: /m, at_boot: true}\n- {source: /x, to: /nvme}"
    )
    assert [dataset.source for dataset in spec.datasets] == ["/nvme/x/part", "/x"]


def test_names_are_read_as_json_writes_them() -> None:
    """``json.dumps`` and Ansible's ``to_json`` write one character beyond U+FFFF as two escapes."""
    name = "katzen-\N{CAT FACE}"
    spec = parse(json.dumps({"datasets": [{"name": name, "source": "/a", "to": "/n"}]}))
    assert [each.name for each in spec.datasets] == [name]
    assert problems('datasets: [{name: "\\ud83d", source: /a, to: /n}]')


def test_an_anchor_saves_writing() -> None:
    spec = parse("volumes:\n- {path: /a, size: &size 3G}\n- {path: /b, size: *size}\n")
    assert [volume.size for volume in spec.volumes] == ["3G", "3G"]


NOT_TEXT = "YAML reads this as false; put it into quotes if it is meant as text"
SIZES = f"accepted: {SIZE_FORMS}"
RATES = f"accepted: {RATE_FORMS}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The whole file
        (
            "3",
            ["1: : the file must hold keys: `volumes`, `datasets`, `requirements` or `packages`"],
        ),
        (
            "- a\n",
            ["1: : the file must hold keys: `volumes`, `datasets`, `requirements` or `packages`"],
        ),
        ("volumes: 3", ["1: volumes: must be a list: each entry begins with `- `"]),
        ("volumes:\n  path: /v", ["1: volumes: must be a list: each entry begins with `- `"]),
        ("Volumes: []", ["1: Volumes: unknown key; did you mean `volumes`?"]),
        (
            "\nhosts: []",
            ["2: hosts: unknown key; known here: volumes, datasets, requirements, packages"],
        ),
        ("a: 1\n---\nb: 2", ["2: : a second document begins; a spec file is one"]),
        ("volumes:\n\t- path: /v", ["2: : a tab stands where YAML wants spaces"]),
        (
            "packages: [fio",
            [
                "1: : is not YAML: expected ',' or ']', but got '<stream end>' "
                "(while parsing a flow sequence)"
            ],
        ),
        (
            "volumes:\n- path: /v\n  size:1G\n",
            ["3: : is not a key; is a blank missing after the `:`?"],
        ),
        (
            "volumes:\n- path: '/v\n  size: 1G\n",
            ["2: : a quotation mark stands here that no other closes"],
        ),
        ("a: *b", ["1: : the alias 'b' has no anchor"]),
        (b"a: 1\nb: \xff\n", ["2: : is not UTF-8 text (byte 0xff); save it as UTF-8"]),
        ("a: 1".encode("utf-16"), ["1: : is not UTF-8 text (byte 0xff); save it as UTF-8"]),
        ("a: 1\nb: \x07", ["2: : holds the character U+0007, which YAML does not allow"]),
        ('a: "\\UFFFFFFFF"', ["1: : holds an escape that is not a character"]),
        # Keys
        (
            "packages: []\nvolumes: []\npackages: []",
            ["3: packages: is given twice, first on line 1"],
        ),
        ("? [a]\n: b", ["1: : a key must be text, not a list or a mapping"]),
        (
            "volumes:\n- &v {path: /a, size: 1G}\n- <<: *v\n  path: /b\n  size: 1G",
            ["3: volumes[1].'<<': merging is not supported; write the keys out"],
        ),
        (
            'volumes: [{path: /a, size: 1G, "x\\ny": 1}]',
            [
                "1: volumes[0].'x\\ny': unknown key; known here: "
                "path, size, owner, mode, inodes, huge, swap"
            ],
        ),
        (
            "packages: [!!python/object/apply:os.system [id]]",
            [
                "1: packages[0]: carries the tag '!!python/object/apply:os.system'; "
                "a spec holds plain values only",
                "1: packages[0]: must be text, not a list",
            ],
        ),
        (
            "packages: [!vault abc]",
            ["1: packages[0]: carries the tag '!vault'; a spec holds plain values only"],
        ),
        # Volumes
        (
            "volumes:\n- path: mnt/v\n  size: 1.5G\n",
            [
                "2: volumes[0].path: 'mnt/v' is not an absolute path",
                f"3: volumes[0].size: '1.5G' is not a size; {SIZES}",
            ],
        ),
        ("volumes: [{path: /v}]", ["1: volumes[0].size: is missing"]),
        ("volumes:\n- path: /v\n  size:\n\n\n", ["3: volumes[0].size: has no value"]),
        ("volumes: [{path: /v, size: 0}]", [f"1: volumes[0].size: '0' is nothing; {SIZES}"]),
        ("volumes: [{path: /v, size: 0%}]", [f"1: volumes[0].size: '0%' is nothing; {SIZES}"]),
        (
            "volumes: [{path: /v, size: 9999999999T}]",
            [
                "1: volumes[0].size: '9999999999T' is more than Linux can count (2^63 bytes); give"
                " a smaller size"
            ],
        ),
        ("volumes: [{path: /v, size: [1G]}]", ["1: volumes[0].size: must be text, not a list"]),
        ("volumes: [{path: {}, size: 1G}]", ["1: volumes[0].path: must be text, not a mapping"]),
        (
            "volumes: [{path: /, size: 1G}]",
            ["1: volumes[0].path: is the root directory; name one below it"],
        ),
        (
            "volumes: [{path: /mnt/../etc, size: 1G}]",
            ["1: volumes[0].path: '/mnt/../etc' goes through `..`; write the path out"],
        ),
        (
            "volumes: [{path: '/mnt/v ', size: 1G}]",
            ["1: volumes[0].path: '/mnt/v ' ends in a blank, which systemd cannot mount on"],
        ),
        (
            'volumes: [{path: "/mnt/\\e[31m", size: 1G}]',
            [
                "1: volumes[0].path: '/mnt/\\x1b[31m' holds control characters or others that"
                " cannot be shown"
            ],
        ),
        ("volumes: [{path: /v, size: 1G, owner: no}]", [f"1: volumes[0].owner: {NOT_TEXT}"]),
        (
            "volumes: [{path: /v, size: 1G, owner: 'a b'}]",
            ["1: volumes[0].owner: 'a b' is not an owner; accepted: USER, USER:GROUP, UID:GID"],
        ),
        (
            "volumes: [{path: /v, size: 1G, mode: 0888, inodes: 1.5, huge: big, swap: 'yes'}]",
            [
                "1: volumes[0].huge: 'big' is none of never, within_size, advise, always",
                "1: volumes[0].inodes: '1.5' is not a whole number above 0",
                "1: volumes[0].mode: '0888' is not a mode; "
                "accepted: octal digits such as 0755 or 1777",
                "1: volumes[0].swap: must be true or false, without quotes",
            ],
        ),
        (
            "volumes:\n- {path: /v, size: 1G}\n- {path: /v/, size: 2G}",
            ["3: volumes[1].path: '/v' is taken by volumes[0] (line 2)"],
        ),
        (
            "volumes:\n-\n- foo",
            [
                "2: volumes[0]: has no value",
                "3: volumes[1]: must hold keys: "
                "`path`, `size`, `owner`, `mode`, `inodes`, `huge` or `swap`",
            ],
        ),
        # Data sets
        (
            "datasets:\n- sorce: /a\n  to: /nvme",
            ["2: datasets[0].sorce: unknown key; did you mean `source`?"],
        ),
        ("datasets: [{source: /a}]", ["1: datasets[0]: needs `volume` or `to`"]),
        (
            "datasets: [{source: /a, volumes: /v}]",
            ["1: datasets[0].volumes: unknown key; did you mean `volume`?"],
        ),
        (
            VOLUME + "datasets:\n- source: /a\n  volume: /v\n  to: /nvme",
            ["3: datasets[0]: has `volume` and `to`; give one of them"],
        ),
        (
            VOLUME + "datasets: [{source: /a, volume: /vv}]",
            ["2: datasets[0].volume: '/vv' is not declared in `volumes`; did you mean /v?"],
        ),
        (
            "datasets: [{source: /a, volume: /w}]",
            ["1: datasets[0].volume: '/w' is not declared in `volumes`"],
        ),
        # Its volume may be the one that is misspelt: nothing is said about it.
        (
            "volume: [{path: /v, size: 1G}]\ndatasets: [{source: /a, volume: /v}]",
            ["1: volume: unknown key; did you mean `volumes`?"],
        ),
        (
            "volumes: [{path: /v, size: 1X}]\ndatasets: [{source: /a, volume: /v}]",
            [f"1: volumes[0].size: '1X' is not a size; {SIZES}"],
        ),
        (
            "datasets:\n- {source: /x/a, to: /nvme}\n- {source: /y/a, to: /nvme/}",
            ["3: datasets[1].source: '/nvme/a' is taken by datasets[0] (line 2)"],
        ),
        (
            "datasets:\n- {source: /a, to: /nvme}\n- {source: /b, to: /nvme, name: a}",
            ["3: datasets[1].name: '/nvme/a' is taken by datasets[0] (line 2)"],
        ),
        (
            "datasets:\n- {source: /a, to: /x, at_boot: true}\n"
            "- {source: /b/a, to: /y, at_boot: true}",
            [
                "3: datasets[1].source: datasets[0] (line 2) of this name is staged at boot too, by"
                " a service of this name; give it another `name`"
            ],
        ),
        (
            "datasets:\n- {source: /a, to: /nvme}\n- {source: /b, to: /nvme/a}",
            ["2: datasets[0].source: '/nvme/a' would hold datasets[1] ('/nvme/a/b'); set it apart"],
        ),
        (
            "datasets:\n- {source: /nvme/a, to: /nvme}",
            ["2: datasets[0].source: '/nvme/a' is also where its copy would be; set them apart"],
        ),
        (
            "datasets:\n- {source: /nvme, to: /nvme, name: a}",
            ["2: datasets[0].source: '/nvme' would hold its copy, '/nvme/a'; set it apart"],
        ),
        (
            "volumes: [{path: /m, size: 1G}]\ndatasets:\n- {source: /m/a/b, volume: /m, name: a}",
            ["3: datasets[0].source: '/m/a/b' lies in its copy, '/m/a'; set it apart"],
        ),
        (
            "volumes: [{path: /m, size: 1G}]\n"
            "datasets:\n- {source: /x, volume: /m}\n- {source: /m/x, to: /nvme, at_boot: true}",
            [
                "4: datasets[1].at_boot: cannot be, since its source is the copy of datasets[0]"
                " (line 3), which a reboot takes away; set `at_boot` there too"
            ],
        ),
        (
            "datasets:\n- {source: /m/b/in, to: /m, name: a}\n- {source: /m/a, to: /m, name: b}\n"
            "- {source: /m/b, to: /m, name: c}",
            [
                "2: datasets[0].source: would come from the copy of datasets[1] (line 3), which"
                " comes from its own; name an original",
                "3: datasets[1].source: would come from the copy of datasets[0] (line 2), which"
                " comes from its own; name an original",
            ],
        ),
        (
            "volumes: [{path: /m/v, size: 1G}]\ndatasets: [{source: /x, to: /m, name: v}]",
            ["2: datasets[0].name: '/m/v' would hold the volume '/m/v'; set it apart"],
        ),
        (
            "volumes: [{path: /m, size: 1G}, {path: /m/v, size: 1G}]\n"
            "datasets: [{source: /x, to: /m/v/sets}]",
            [
                "2: datasets[0].to: '/m/v/sets' lies in the volume '/m/v'; set `volume` instead,"
                " which puts data sets directly below it"
            ],
        ),
        (
            "datasets: [{source: /, to: /nvme}]",
            ["1: datasets[0].source: cannot give the name: it is not a name; add `name`"],
        ),
        (
            "datasets: [{source: .hidden, to: /nvme}]",
            ["1: datasets[0].source: cannot give the name: it begins with '.'; add `name`"],
        ),
        (
            "datasets: [{source: $DATA/a, to: /nvme}]",
            [
                "1: datasets[0].source: '$DATA/a': variables are not expanded; write the path out,"
                " or ./ before a folder of that name"
            ],
        ),
        (
            "datasets: [{source: ~/a, to: /nvme}]",
            ["1: datasets[0].source: '~/a': `~` is not expanded; write the path out"],
        ),
        (
            "datasets: [{source: a/../b, to: /nvme}]",
            ["1: datasets[0].source: 'a/../b' goes through `..`; write the path out"],
        ),
        ("datasets: [{source: ~, to: /nvme}]", ["1: datasets[0].source: has no value"]),
        ('datasets: [{source: "", to: /nvme}]', ["1: datasets[0].source: has no value"]),
        (
            "datasets: [{source: /a, to: nvme, name: x/y, at_boot: 1}]",
            [
                "1: datasets[0].at_boot: must be true or false, without quotes",
                "1: datasets[0].name: 'x/y' cannot name a data set: it holds a slash",
                "1: datasets[0].to: 'nvme' is not an absolute path",
            ],
        ),
        # Requirements
        (
            "datasets: [{source: /cty, to: /n}]\nrequirements:\n- dataset: cit\n"
            "  samples_per_second: 1",
            ["3: requirements[0].dataset: 'cit' is not declared in `datasets`; did you mean cty?"],
        ),
        *(
            (
                "datasets: [{source: /a, to: /n}]\n"
                f"requirements: [{{dataset: a, bytes_per_second: {rate}}}]",
                [f"2: requirements[0].bytes_per_second: '{rate}' {wrong}; {RATES}"],
            )
            for rate, wrong in (
                ("abc", "is not a rate"),
                ("1G/s/s", "is not a rate"),
                ("0/s", "is nothing"),
            )
        ),
        (
            "datasets: [{source: /a, to: /n}]\nrequirements: [{dataset: a}]",
            ["2: requirements[0]: needs `samples_per_second` or `bytes_per_second`"],
        ),
        (
            "datasets: [{source: /a, to: /n}]\nrequirements:\n"
            "- {dataset: a, samples_per_second: 0}\n- {dataset: a, samples_per_second: .nan}\n"
            "- {dataset: a, bytes_per_second: 5%}\n- {dataset: a, samples_per_second: fast}",
            [
                "3: requirements[0].samples_per_second: '0' is not a number above 0",
                "4: requirements[1].samples_per_second: '.nan' is not a number above 0",
                f"5: requirements[2].bytes_per_second: '5%' is not a rate; {RATES}",
                "6: requirements[3].samples_per_second: 'fast' is not a number above 0",
            ],
        ),
        *(
            (
                "datasets: [{source: /a, to: /n}]\n"
                f"requirements: [{{dataset: a, samples_per_second: {number}}}]",
                [f"2: requirements[0].samples_per_second: '{number}' is not a number above 0"],
            )
            for number in ("١٨٠٠", "1_800")  # which Python's float() reads
        ),
        *(
            (
                f"volumes: [{{path: /v, size: 1G, {key}: {number}}}]",
                [f"1: volumes[0].{key}: {said}"],
            )
            for key, number, said in (
                ("inodes", "٣", "'٣' is not a whole number above 0"),
                ("inodes", "1_000", "'1_000' is not a whole number above 0"),
                (
                    "inodes",
                    "18014398509481984",
                    "'18014398509481984' is more than the kernel takes (18014398509481983)",
                ),
                (
                    "mode",
                    "٧٥٥",
                    "'٧٥٥' is not a mode; accepted: octal digits such as 0755 or 1777",
                ),
            )
        ),
        (
            "datasets: [{source: /a, to: /n}]\nrequirements:\n"
            "- {dataset: a, samples_per_second: 1}\n- {dataset: a, samples_per_second: 2}",
            ["4: requirements[1].dataset: 'a' is taken by requirements[0] (line 3)"],
        ),
        # Packages
        (
            "packages:\n- fio\n- --force\n- fio\n-\n- true\n- nano-",
            [
                "3: packages[1]: '--force' is not the name of a package",
                "4: packages[2]: 'fio' is taken by packages[0] (line 2)",
                "5: packages[3]: has no value",
                f"6: packages[4]: {NOT_TEXT.replace('false', 'true')}",
                "7: packages[5]: 'nano-' is not the name of a package",
            ],
        ),
    ],
)
def test_mistakes_are_told_by_line_and_key(text: str | bytes, expected: list[str]) -> None:
    assert problems(text) == expected


def test_the_message_of_one_mistake_is_one_line_and_of_several_a_list() -> None:
    with pytest.raises(SpecError) as one:
        parse("volumes: [{path: /v, size: 1G, huge: x}]")
    assert one.value.message == (
        "h.yml:1: volumes[0].huge: 'x' is none of never, within_size, advise, always"
    )
    with pytest.raises(SpecError) as two:
        parse("a: 1\nb: 1")
    known = "unknown key; known here: volumes, datasets, requirements, packages"
    assert two.value.message == (
        f"h.yml holds 2 mistakes; nothing was changed.\nh.yml:1: a: {known}\nh.yml:2: b: {known}"
    )
    assert two.value.hint == "correct the file; `hostprep spec check` reads it without acting on it"
    assert two.value.problems == (Problem(1, "a", known), Problem(2, "b", known))
    assert two.value.exit_code == 2


def test_what_was_meant_is_looked_for_only_where_it_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Comparing 3,000 names with 200 took forty seconds."""
    asked: list[str] = []
    monkeypatch.setattr(checking, "or_near", lambda word, known: asked.append(word) or "")
    datasets = "datasets: [{source: /a, to: /x, name: name}]\n"
    with pytest.raises(SpecError) as caught:
        parse(
            datasets
            + "requirements:\n"
            + "".join(f"- {{dataset: n{number}, samples_per_second: 1}}\n" for number in range(300))
        )
    assert len(caught.value.problems) == 300
    assert asked == [f"n{number}" for number in range(50)]


def test_a_flood_of_mistakes_is_cut_in_the_message_and_whole_beside_it() -> None:
    with pytest.raises(SpecError) as caught:
        parse("packages:\n" + "- -x\n" * 60)
    assert caught.value.message.endswith("\n... and 10 more")
    assert len(caught.value.message.splitlines()) == 52
    assert len(caught.value.problems) == 60


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "more than 10000 values, those of aliases counted each time"),
        ("volumes: &v [*v]", "is nested too deeply"),
        ("[" * 20 + "]" * 20, "is nested too deeply"),
        ("[" * 20_000, "is nested too deeply"),
        ("packages: [" + "x" * 5000 + "]", "is longer than 4096 characters"),
        ("volumes: [{path: /v, size: " + "9" * 5000 + "}]", "is longer than 4096 characters"),
    ],
    ids=["aliases", "itself", "deep", "abyss", "text", "digits"],
)
def test_what_would_eat_the_memory_is_refused(text: str, message: str) -> None:
    assert message in " ".join(problems(text))


def test_a_file_read_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hostprep.spec.loading import load_spec

    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "h.yml").write_text("datasets: [{source: ../a, to: /nvme}]")
    spec = load_spec(tmp_path / "link" / "h.yml")
    assert spec.path == str(tmp_path / "real" / "h.yml")
    assert spec.datasets[0].source == str(tmp_path / "a")

    monkeypatch.chdir(tmp_path / "real")
    assert load_spec(Path("h.yml")) == spec
