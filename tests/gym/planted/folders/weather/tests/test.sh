#!/bin/bash
[ "$(cat /app/weather.txt)" = "1 85 40.9" ]
if [ $? -eq 0 ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
