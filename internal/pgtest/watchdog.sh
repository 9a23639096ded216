# $1 is the folder of one test process. Its end closes our input: then every
# process that works below the folder is killed, and the folder is removed.
trap '' HUP INT TERM
cd /
cat >/dev/null
below() {
	ls -l /proc/[0-9]*/cwd 2>/dev/null |
		awk -v at="/cwd -> $1/" 'i = index($0, at) { n = split(substr($0, 1, i - 1), f, "/"); print f[n] }'
}
while pids=$(below "$1") && [ -n "$pids" ]; do
	kill -9 $pids 2>/dev/null
	sleep 0.02
done
# A killed server leaves its shared memory segment.
for f in "$1"/*/data/postmaster.pid; do
	[ -e "$f" ] && ipcrm -m "$(awk 'NR == 7 { print $2 }' "$f")" 2>/dev/null
done
rm -rf "$1"
