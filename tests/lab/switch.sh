# Process 1 of a lab, in namespaces of its own: holds the bridge and the hosts' disks. With it the whole lab ends.
# /proc is still the machine's: "self" is the number by which we are known outside.
set -e
trap 'echo lab: failed >&2' EXIT
folder=$1 disk_mb=$2
shift 2
read -r self < /proc/self/stat
ip link add lab type bridge forward_delay 0 mcast_snooping 0
ip link set lab up
for host; do
    mkdir -p "$folder/disk/$host"
    mount -t tmpfs -o "size=${disk_mb}m,mode=1777" "lab-$host" "$folder/disk/$host"
done
echo "$self" > "$folder/.switch"
mv "$folder/.switch" "$folder/switch.stat"
trap '' CHLD # the kernel buries whoever ends here
exec sleep infinity
