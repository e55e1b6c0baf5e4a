"""What this machine is: readers of /proc, /sys and /etc that take the root and change nothing."""
