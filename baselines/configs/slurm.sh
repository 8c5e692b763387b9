#!/bin/bash
# A training run under SLURM that may be preempted or run out of time: SIGTERM finishes the batch and writes a checkpoint,
# and the job is queued again and goes on.
#
#   sbatch baselines/configs/slurm.sh gigpo alfworld_1.5b
#   sbatch --nodes=2 --export=ALL,ACCELERATE=baselines/configs/accelerate/two_nodes_zero3.yaml \
#       baselines/configs/slurm.sh gigpo alfworld_7b --steps_per_batch 8 --max_steps 1200
#
# The first two words are the algorithm and the recipe; what follows are settings.
#SBATCH --job-name=agentgym_flow
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@900
# The last line: SIGTERM comes 15 minutes before the end, which must be enough for a batch and a checkpoint.

algorithm=$1 recipe=$2
shift 2
export OUT=${OUT:-runs/$recipe} ACCELERATE=${ACCELERATE:-baselines/configs/accelerate/eight_gpus_zero2.yaml}
export HEAD PORT=${PORT:-29500}
HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
resume=()
if [ -e "$OUT/summary.json" ]; then resume=(--resume true); fi

# Runs on each node. The signal goes to the training processes and not to their launcher, which would kill them 30 seconds
# later: a session of its own keeps SLURM's from it.
node='
setsid accelerate launch --config_file "$ACCELERATE" --num_machines "$SLURM_NNODES" --machine_rank "$SLURM_NODEID" \
    --main_process_ip "$HEAD" --main_process_port "$PORT" --no_python agentgym-flow train "$@" &
launcher=$!
trap "pkill -TERM -P $launcher" TERM
while kill -0 $launcher 2> /dev/null; do wait $launcher; status=$?; done
exit $status
'
trap : TERM  # the job script waits for its steps
srun --kill-on-bad-exit=0 bash -c "$node" "$algorithm" "$algorithm" --config "$recipe" --output_dir "$OUT" "${resume[@]}" "$@" &
step=$!
while kill -0 $step 2> /dev/null; do wait $step; status=$?; done
if grep -q '"interrupted"' "$OUT/summary.json"; then
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
