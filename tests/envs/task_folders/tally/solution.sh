#!/bin/bash
cat > tally.sh <<'END'
grep -c '^error' "$1"
END
