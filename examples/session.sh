#!/bin/sh
# From a messy CSV file to a report and predictions, with nothing edited by hand.
#
#     sh examples/session.sh FOLDER
#
# EPOCHS and FOLDS make it shorter or longer; WORKERS is how many runs are trained at a time.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:-tickets}"
cd "${1:-tickets}"
python=${PYTHON:-python}
tailbatch="$python -m tailbatch"
columns="--labels tags --kinds paid=number"

$python "$here/tickets.py" .

$tailbatch datasets describe tickets.csv $columns

$tailbatch fit tickets.csv $columns --out model --epochs "${EPOCHS:-60}"
$tailbatch evaluate model tickets_test.csv --csv labels.csv
$tailbatch predict model tickets_new.csv --out tags.csv --kind tags --keep ticket_id --overwrite
$tailbatch explain model tickets_test.csv --label security --keep subject --top 5

$tailbatch compare tickets.csv $columns --strategies random,minority \
    --n-folds "${FOLDS:-3}" --epochs "${EPOCHS:-60}" --workers "${WORKERS:-1}" --store records
$tailbatch report records --out report.html --csv runs.csv
