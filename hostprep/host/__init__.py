"""What this machine is: readers of /proc, /sys and /etc that take a root and change nothing."""
