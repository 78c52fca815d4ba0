#!/bin/sh
# Ranks that are started by gpt-launch (on one machine and on two), by mpirun,
# and in the environment of Slurm have the losses of one rank. torchrun has a
# test of its own.
. "$(dirname "$0")/../lib/tap.sh"
. "$top/tests/lib/train.sh"
. "$top/tests/lib/nodes.sh"
for name in OMP_NUM_THREADS GPT_THREADS RANK WORLD_SIZE MASTER_ADDR \
    MASTER_PORT SLURM_PROCID OMPI_COMM_WORLD_SIZE; do
    unset $name
done

needs_gloo
make_data

steps=10
options="$tiny --num-layers 4 --global-batch-size 4 --train-iters $steps -q"
two="$options --tensor-model-parallel-size 2"
same() { compare_metrics one.jsonl "$1" $steps; }
# shellcheck disable=SC2086 # word lists
expect 0 'one rank' gpt-train $options --metrics one.jsonl

# shellcheck disable=SC2086
expect 0 'gpt-launch' gpt-launch --standalone --nproc-per-node 2 \
    gpt-train $two --metrics launch.jsonl
check 'the same losses' same launch.jsonl
check 'and how long ranks waited' grep -q '"pipeline_wait_ms":[0-9.]*,"reduce_wait_ms":[0-9]' \
    launch.jsonl

mpi() {
    timeout 60 mpirun --allow-run-as-root --oversubscribe -np 2 "$@"
}
for n in n np host; do
    expect 2 "-$n of mpirun" gpt-launch "-$n" 2 gpt-train
    err_has "unknown option '-$n', a name of mpirun"
done
if command -v mpirun >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    expect 0 'mpirun' mpi gpt-train $two --metrics mpi.jsonl
    check 'the same losses' same mpi.jsonl
else
    skip 'no mpirun'
fi

# Sets $job to the number of a job of Slurm whose port no socket has.
. "$top/tests/lib/port.sh"
next_job() {
    next_port
    job=$((port - 15000))
}
# Runs one job under Slurm; the port follows from the number of the job.
slurm() { # options...
    next_job
    for r in 0 1; do
        # shellcheck disable=SC2086
        env SLURM_PROCID=$r SLURM_NTASKS=2 SLURM_LOCALID=$r SLURM_NODEID=0 \
            SLURM_STEP_ID=0 SLURM_JOB_ID="$job" SLURM_NTASKS_PER_NODE=2 \
            SLURM_JOB_NODELIST=localhost timeout 60 gpt-train $two "$@" &
        pids="${pids:-} $!"
    done
}
both_jobs() {
    slurm --metrics job1.jsonl
    slurm --metrics job2.jsonl
    status=0
    for pid in $pids; do
        wait "$pid" || status=1
    done
    return $status
}
check 'two jobs under Slurm' both_jobs
cp check.log jobs.log
check 'the same losses' same job1.jsonl
check 'in both' same job2.jsonl

check 'srun is not missed there' test "$(grep -c SLURM_STEP_ID jobs.log)" = 0
next_job
# shellcheck disable=SC2086
expect 4 'the script of a job, without srun' env SLURM_PROCID=0 SLURM_NTASKS=2 \
    SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_JOB_ID="$job" \
    SLURM_JOB_NODELIST=localhost gpt-train $two \
    --distributed-timeout-minutes 0.02
err_has 'unless srun starts this program, the other ranks will not come'

two_nodes() { # metrics
    for node in 0 1; do
        # shellcheck disable=SC2086
        on $node env RANKS=2 CONFIG=plain.conf timeout 60 \
            sh "$top/share/examples/two-nodes.sh" $node 192.0.2.1 \
            $options --metrics "$1" >log.$node 2>&1 &
        [ $node = 0 ] && first=$!
    done
    wait $! && wait "$first"
}
echo '# no preset' >plain.conf
if make_nodes; then
    check 'two machines' two_nodes nodes.jsonl
    check 'the same losses' same nodes.jsonl
else
    skip 'two machines need root, ip and network namespaces'
fi
tap_done
