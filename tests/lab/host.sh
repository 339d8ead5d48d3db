# Process 1 of a host, in namespaces of its own. /proc is still the machine's until it is mounted.
set -e
trap 'echo lab: failed >&2' EXIT
folder=$1 name=$2
read -r self < /proc/self/stat
mount -t proc proc /proc
echo "$name" > /proc/sys/kernel/hostname
echo 0 > /proc/sys/net/ipv4/ip_forward
# As most machines have it: another, such as BBR, would hardly notice what a link loses.
echo cubic > /proc/sys/net/ipv4/tcp_congestion_control || true
ip link set lo up

mount --bind "$folder/disk/$name" /tmp
mount -t tmpfs -o mode=1777 "lab-$name-shm" /dev/shm
mount -t tmpfs -o mode=755,size=64m "lab-$name-run" /run
mkdir -p /run/sshd /run/lock /tmp/home/.ssh /tmp/shared
mount --bind "$folder/shared" /tmp/shared

cp -a /etc /run/etc
mount --bind /run/etc /etc
echo "$name" > /etc/hostname
cp --remove-destination "$folder/hosts" /etc/hosts
rm -f /etc/resolv.conf
: > /etc/resolv.conf
cp "$folder/profile" /etc/profile.d/zz-lab.sh
sed -i 's|^\(root:.*:\)/root:[^:]*$|\1/tmp/home:/bin/bash|' /etc/passwd
sed -i 's|^root:[^:]*:|root:*:|' /etc/shadow
chmod 700 /tmp/home /tmp/home/.ssh
for file in id_ed25519 authorized_keys known_hosts; do
    [ -e "/tmp/home/.ssh/$file" ] || cp -p "$folder/ssh/$file" "/tmp/home/.ssh/$file"
done

echo "$self" > "$folder/.$name"
mv "$folder/.$name" "$folder/host-$name.stat"
trap '' CHLD # the kernel buries whoever ends here
exec sleep infinity
