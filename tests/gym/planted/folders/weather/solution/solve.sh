#!/bin/bash
sed -i 's/numbers.count()/len(numbers)/' weather.py
python3 weather.py
