#!/usr/bin/env bash
# Runs all tests in a few runs of pytest: three at a time, because tests that boot hosts and tests on
# real mounts spend half of their time waiting; then, with nothing else running, the tests that
# compare a measured time with a known one. `python -m pytest` does all in one run, which takes longer.
set -uo pipefail
cd "$(dirname "$0")/.."

# If Python may not write bytecode (PYTHONDONTWRITEBYTECODE), each of some thousand commands would
# compile hostprep again.
.venv/bin/python -m compileall -q hostprep tests/kit

# Balances the three runs: the one that boots hosts also gets some tests on real mounts, and the one
# on real mounts gets a test that would otherwise belong to the third.
moved=(tests/integration/test_{probe,provision,stage_kills,stage_slow_sources}.py)
lent=tests/cli/test_recommend_compared.py

# Torch takes a gigabyte in these tests, and each fork in a later test of the same process would copy
# the page tables of that: so they have a run of their own.
torchs=(tests/unit/{cuda,loading})

# Only these files contain tests that check a measured time.
mapfile -t holding_time < <(grep -rlE 'mark\.timed' tests --include='test_*.py' | sort)

said=$(mktemp -d)
beside=()
trap 'kill -INT "${beside[@]}" 2>/dev/null; wait; rm -rf "$said"' EXIT
trap 'exit 130' INT TERM

# Each run has its own record of failed tests.
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

# Other programs may disturb the machine for longer than a test's retries last, and some tests wait
# in vain for a disk that all the others write to: failed tests run once more, later and with
# nothing beside them. A real fault of hostprep fails again.
status=0
for each in others torchs mounts hosts timed; do
    if [ "${ended[$each]}" = 1 ]; then # tests failed; any other status means that some were not run
        [ "$each" != timed ] || sleep 120
        echo "once more, alone: what failed of the $each"
        "$each" --last-failed --last-failed-no-failures none
        ended[$each]=$?
    fi
    [ "${ended[$each]}" = 0 ] || status=1
done
exit "$status"
