#!/usr/bin/env bash
# Makes .venv with hostprep and its development tools, and installs missing system tools, saying in
# one sentence what each is for. Without root it only names them and goes on.
#   setup.sh --base           the virtual environment with hostprep
#   setup.sh --dev            its development tools on top
#   setup.sh --system-tools   tools that the tests call
#   setup.sh --vm-tools       tools that the tests on whole machines call
#   setup.sh --demo-tools     tools that the demo calls
#   setup.sh --bench-tools    the peers and rigs of the benchmarks
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }

updated=
apt_install() { # PACKAGE REASON
  if ! command -v apt-get >/dev/null; then
    say "$1 is missing ($2), and this is not Debian: install it with your package manager."
    return 1
  fi
  if [ "$(id -u)" -ne 0 ]; then
    say "$1 is missing ($2); as root: apt-get install $1"
    return 1
  fi
  say "installing $1: $2."
  if [ -z "$updated" ]; then
    apt-get update -qq >/dev/null 2>&1 || say "apt-get update failed; trying with the lists at hand."
    updated=1
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null 2>&1 || {
    say "installing $1 failed."
    return 1
  }
}

need() { # COMMAND PACKAGE REASON
  PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null || apt_install "$2" "$3" || true
}

demo_tools() {
  need findmnt util-linux "reads mounts and checks fstab"
  need mount mount "mounts the tmpfs"
}

bench_tools() {
  need rsync rsync "is compared with"
  need rclone rclone "is compared with"
  need fpsync fpart "has fpsync, which is compared with"
  need cpio cpio "is what fpsync copies with"
  need fusermount3 fuse3 "mounts the slow disks of the benchmarks"
  need mkfs.ext4 e2fsprogs "makes the file system on the slow disk"
}

system_tools() {
  need findmnt util-linux "reads mounts and checks fstab"
  need fio fio "measures disks"
  need mkfs.ext4 e2fsprogs "makes the ext4 that the tests stage onto"
  need mkfs.xfs xfsprogs "makes the xfs that the tests stage onto"
  need mkfs.btrfs btrfs-progs "makes the btrfs that the tests stage onto"
  need fusermount3 fuse3 "mounts the slow and the failing file systems of the tests"
  need jq jq "reads the JSON in the tests of pipelines"
  need zsh zsh "completes commands in the tests"
  need fish fish "completes commands in the tests"
  need chromium chromium "opens the HTML report in the tests"
  need strace strace "shows the tests in which order fstab is flushed and renamed"
  need systemd-analyze systemd "reads the boot services that the tests write"
  need debootstrap debootstrap "makes the Debian that the tests boot as hosts"
  need systemd-nspawn systemd-container "boots them"
  need ip iproute2 "gives them a network of their own"
  need ssh openssh-client "reaches them, for tests as for ansible"
  need sshfs sshfs "is a target that lists a directory once only"
  need /usr/lib/openssh/sftp-server openssh-sftp-server "serves it"
}

vm_tools() {
  need qemu-system-x86_64 qemu-system-x86 "emulates the machines of the tests"
  need qemu-img qemu-utils "makes their disks"
  need debootstrap debootstrap "makes the Debian that they boot"
  need mke2fs e2fsprogs "puts it on a disk"
  need ssh openssh-client "reaches them"
}

# The system's Python comes before others on PATH, as in the README: it is built with all
# optimisations, unlike most builds by users (with which `hostprep stage` takes an eighth longer).
python_of_choice() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} /usr/bin/python3 python3 python3.{14,13,12,11}; do
    if command -v "$candidate" >/dev/null && makes_environments "$candidate"; then
      command -v "$candidate"
      return
    fi
    [ "$candidate" != "${PYTHON:-}" ] || say "$PYTHON is not a Python 3.11 or later that has venv."
  done
  return 1
}

makes_environments() { # PYTHON
  local version
  version=$("$1" -c 'import sys; sys.exit(sys.version_info < (3, 11) or print("%d.%d" % sys.version_info[:2]))' 2>/dev/null) ||
    return 1
  "$1" -c 'import ensurepip, venv' 2>/dev/null && return
  case "$(readlink -f "$(command -v "$1")")" in
    /usr/bin/*) apt_install "python$version-venv" "makes the virtual environment" ;;
    *) return 1 ;;
  esac
}

virtual_environment() {
  local python
  # If making it was interrupted, it has a Python but no pip.
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    if ! python=$(python_of_choice); then
      apt_install python3 "hostprep is written in it" && python=$(python_of_choice) || {
        say "Python 3.11 or later, with its venv, is needed; set PYTHON=/path/to/python3 if it is somewhere unusual."
        exit 1
      }
    fi
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
  fi
  say "installing hostprep into .venv"
  pip_install '.'
}

development_tools() {
  say "installing the development tools into .venv"
  pip_install '.[dev]'
}

pip_install() {
  # pip's warnings are about its own configuration; its errors are still shown.
  .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --editable "$1"
}

case "${1:-}" in
  --system-tools) system_tools ;;
  --vm-tools) vm_tools ;;
  --demo-tools) demo_tools ;;
  --bench-tools) bench_tools ;;
  --base) virtual_environment ;;
  --dev) development_tools ;;
  *) say "unknown option $1"; exit 2 ;;
esac
