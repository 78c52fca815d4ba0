# shellcheck shell=sh
# Ports for tests that name one. next_port sets $port to one that no socket of
# this machine has. Each script takes its ports from a block of its own, since
# scripts run side by side. All are below the ports that the kernel gives out,
# and are those that follow from the numbers of Slurm's jobs: 15000 for job 0.

port=$((15000 + $$ % 636 * 22))

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
        [ $port -lt 29000 ] || port=$((port - 13990))
    done
}
