import sys

a = 0
b = 1
for _ in range(int(sys.argv[1])):
    print(a)
    a, b = b, a + b
