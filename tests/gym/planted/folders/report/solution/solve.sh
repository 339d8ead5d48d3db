#!/bin/bash
sed -i 's/numbers.count()/len(numbers)/' report.py
python3 report.py
