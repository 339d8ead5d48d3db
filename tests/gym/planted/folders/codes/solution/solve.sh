#!/bin/bash
echo '[A-Z]{2}-[0-9]{4}' > pattern.txt
