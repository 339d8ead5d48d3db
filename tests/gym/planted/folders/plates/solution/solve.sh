#!/bin/bash
echo '[A-Z]{3} [0-9]{3}' > pattern.txt
