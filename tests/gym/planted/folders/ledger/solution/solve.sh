#!/bin/bash
tail -n +2 ledger.csv | sort | awk -F, '{ sum[$1] += $2 } END { for (key in sum) print key "," sum[key] }' | sort > totals.csv
