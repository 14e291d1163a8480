"""Airflow 3: rotates a database in ranges, as one mapped task, and merges their results; see docs/scale.md.

Put it beside range.sh in the folder of DAGs. The environment of workers needs DATABASE_URL, SEALPOINT_KEYS,
VKEY, the verifier key of the ledger, and SEALPOINT_RUNS, a folder that all of them share. No id of a thread
is in Airflow's database: a task gets the number of its range. The run fails unless `sealpoint merge` ends
with 0.
"""

from __future__ import annotations

import shlex
from datetime import timedelta
from pathlib import Path

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

COUNT = 16
RANGE = shlex.quote(str(Path(__file__).with_name("range.sh")))
ENTER = 'set -eu; folder=$SEALPOINT_RUNS/$AIRFLOW_CTX_DAG_RUN_ID; mkdir -p "$folder"; cd "$folder"; '

with DAG("sealpoint_rotate", schedule=None, catchup=False, max_active_runs=1) as dag:
    plan = BashOperator(
        task_id="plan",
        bash_command=f'{ENTER}: "$VKEY"; sealpoint shards --db-env DATABASE_URL --count {COUNT} > ranges.new;'
        " mv ranges.new ranges; wc -l < ranges",
        append_env=True,
        output_processor=lambda lines: [{"NUMBER": str(number)} for number in range(1, int(lines) + 1)],
    )
    ranges = BashOperator.partial(
        task_id="range",
        bash_command=f'{ENTER}exec sh {RANGE} ranges "$NUMBER" rotate --apply',
        append_env=True,
        max_active_tis_per_dagrun=4,
        # What has a result is not run again: merge says what is wrong with it. 6, 7 and kills are.
        skip_on_exit_code=[1, 2, 3, 4, 5],
        retries=6,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=True,
    ).expand(env=plan.output)
    merge = BashOperator(
        task_id="merge",
        bash_command=f'{ENTER}exec sealpoint merge --vkey "$VKEY" [0-9]*.json',
        append_env=True,
        trigger_rule="all_done",
    )
    ranges >> merge
