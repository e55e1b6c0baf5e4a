#!/bin/bash
# Hold namespaces open (mounts, network, processes, control groups) for as long as standard input
# stays open; print the process to enter them by. However the tests end, their end of that pipe is
# closed, and the kernel then takes away every process, mount and interface inside.
# fence.sh FOLDER ADDRESS/BITS: the folder is an empty tmpfs inside; the address is that of the
# bridge fleet0, to which hosts are plugged.
set -eu
root=/sys/fs/cgroup
[ -e "$root/cgroup.procs" ] || root=$root/unified
group=$root/hostprep-fleet-$(stat -c %i "$1")
mkdir "$group"
leave() {
  echo $$ >"$root/cgroup.procs"
  [ ! -e "$group/cgroup.kill" ] || echo 1 >"$group/cgroup.kill"
  for _ in {1..100}; do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null && break
    sleep 0.05
  done
}
trap leave EXIT
echo $$ >"$group/cgroup.procs"
# The shell that unshare starts is process 1 in there: all others end with it.
unshare --cgroup --mount --net --pid --fork --propagation private -- bash -eu -c '
  read -r outer _ </proc/self/stat # as those outside know this process
  mount -t proc proc /proc
  mount -t tmpfs -o mode=0755 fleet-run /run
  mkdir -p /run/systemd/nspawn /run/lock
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  mount -t tmpfs -o mode=0755 fleet-hosts "$1"
  ip link set lo up
  ip link add fleet0 type bridge
  ip address add "$2" dev fleet0
  ip link set fleet0 up
  echo "$outer"
  exec cat >/dev/null
' fence "$1" "$2"
