#!/bin/bash
printf '1 2\n3 4\n5 6\n7 8\n' > plan.txt
