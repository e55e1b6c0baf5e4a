#!/usr/bin/env bash
# Run all tests in a few runs of pytest: three side by side, since those that boot hosts and those on
# real mounts wait for half of the time; then, with nothing beside them, those that hold a measured
# time against a known one. `python -m pytest` has all in one run, which takes longer.
set -uo pipefail
cd "$(dirname "$0")/.."

# Where Python may not write bytecode (PYTHONDONTWRITEBYTECODE), each of some thousand commands would
# compile hostprep anew.
.venv/bin/python -m compileall -q hostprep tests/kit

# So that the three take about as long: those that boot hosts have some of those on real mounts
# beside them, and those on real mounts one that would fit with the others.
moved=(tests/integration/test_{probe,provision,stage_kills,stage_slow_sources}.py)
lent=tests/cli/test_recommend_compared.py

# Torch takes a gigabyte in them, of which each fork of a later test in the same process copies the
# page tables: in a run of their own it is theirs alone.
torchs=(tests/unit/{cuda,loading})

# Only these have to be read for those that hold a measured time.
mapfile -t holding_time < <(grep -rlE 'mark\.timed' tests --include='test_*.py' | sort)

said=$(mktemp -d)
beside=()
trap 'kill -INT "${beside[@]}" 2>/dev/null; wait; rm -rf "$said"' EXIT
trap 'exit 130' INT TERM

# Each run keeps for itself what failed in it.
run() { .venv/bin/python -m pytest -o cache_dir="$said/$1.cache" "${@:2}"; }
mounts() {
    run mounts -m "not timed" "$lent" tests/integration "${moved[@]/#/--ignore=}" "$@"
}
hosts() { run hosts -m "not timed" tests/fleet "${moved[@]}" "$@"; }
others() {
    run others -m "not timed" --ignore tests/integration --ignore tests/fleet --ignore "$lent" \
        "${torchs[@]/#/--ignore=}" "$@"
}
torchs() { run torchs -m "not timed" "${torchs[@]}" "$@"; }
timed() { run timed -m timed "${holding_time[@]}" "$@"; }

declare -A ended
mounts >"$said/mounts" 2>&1 &
beside+=($!)
hosts >"$said/hosts" 2>&1 &
beside+=($!)
others
ended[others]=$?
torchs
ended[torchs]=$?
echo "waiting for tests/integration and tests/fleet, which run beside these"
wait "${beside[0]}"
ended[mounts]=$?
wait "${beside[1]}"
ended[hosts]=$?
cat "$said/mounts" "$said/hosts"
timed
ended[timed]=$?

# Something else on the machine may disturb it for longer than the tries of one test last, and some
# wait in vain for a disk that all the others write to: what failed is asked once more, later and
# with nothing beside it. What is wrong with hostprep stays so.
status=0
for each in others torchs mounts hosts timed; do
    if [ "${ended[$each]}" = 1 ]; then # tests failed; all else means that some were not run
        [ "$each" != timed ] || sleep 120
        echo "once more, alone: what failed of the $each"
        "$each" --last-failed --last-failed-no-failures none
        ended[$each]=$?
    fi
    [ "${ended[$each]}" = 0 ] || status=1
done
exit "$status"
