# shellcheck shell=sh
# Two "machines": network namespaces that a virtual cable connects, with the
# addresses 192.0.2.1 and 192.0.2.2 (RFC 5737). Source it after tap.sh.
#
#   make_nodes && on 0 COMMAND...; on 1 COMMAND...

nodes=gpt-$$
make_nodes() {
    [ "$(id -u)" = 0 ] && command -v ip >/dev/null 2>&1 || return 1
    trap 'remove_nodes; rm -rf "$scratch"' EXIT
    ip netns add $nodes-0 2>/dev/null && ip netns add $nodes-1 2>/dev/null &&
        ip link add cable netns $nodes-0 type veth \
            peer name cable netns $nodes-1 2>/dev/null || return 1
    for node in 0 1; do
        on $node ip link set lo up &&
            on $node ip address add 192.0.2.$((node + 1))/24 dev cable &&
            on $node ip link set cable up || return 1
    done
}
on() { # node command...
    node=$1
    shift
    ip netns exec "$nodes-$node" "$@"
}
remove_nodes() {
    for node in 0 1; do
        ip netns delete $nodes-$node 2>/dev/null
    done
}
