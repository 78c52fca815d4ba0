# shellcheck shell=sh
# Ports for tests that name one. next_port sets $port to one that no socket of
# this machine has. Each script takes its ports from a block of its own, since
# scripts run side by side; all are below the ports that the kernel gives out.

port=$((10000 + $$ % 1000 * 22))

# True when a socket has the port, in whatever state.
port_is_taken() { # port
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        awk -v port="$(printf ':%04X' "$1")" '
            substr($2, length($2) - 4) == port { taken = 1 }
            END { exit !taken }'
}
next_port() {
    port=$((port + 1))
    while port_is_taken $port; do
        port=$((port + 22))
        [ $port -lt 32000 ] || port=$((port - 21990))
    done
}
