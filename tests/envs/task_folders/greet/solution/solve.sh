#!/bin/bash
sed "s/.*/$GREETING, &!/" guests.txt > out/greeting.txt
