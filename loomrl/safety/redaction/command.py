"""Secrets on command lines."""

import re

from loomrl.safety.redaction.rule import ARGUMENTS, VALUE, WORD, Rule

_OPTIONS: tuple[tuple[str, str], ...] = (
    ("sshpass", "p"),
    ("login", "p"),
    ("useradd usermod", "p"),
    ("mongo mongosh mongodump mongorestore mongoimport mongoexport mongostat", "p"),
    ("zip unzip", "P"),
    ("ldapsearch ldapadd ldapmodify ldapdelete ldappasswd ldapwhoami ldapcompare ldapmodrdn", "w"),
    ("sqlcmd bcp", "P"),
)
"""Commands, and the option that holds a password."""

RULES: tuple[Rule, ...] = (
    Rule(
        words=("mysql", "mariadb", "mysqldump", "mysqladmin", "mysqlimport", "mysqlcheck"),
        form=re.compile(rf"\b(?:mysql|mariadb)\w*\b{ARGUMENTS}\s-p{WORD}"),
    ),
    *(
        Rule(words=names.split(), form=re.compile(rf"\b[a-z]+\b{ARGUMENTS}\s-{option}\ {{1,4}}{WORD}"))
        for names, option in _OPTIONS
    ),
    Rule(signs=("ssh-keygen",), form=re.compile(rf"\bssh-keygen\b{ARGUMENTS}\s-N\ {{1,4}}{WORD}")),
    Rule(signs=("redis-cli",), form=re.compile(rf"\bredis-cli\b{ARGUMENTS}\s-a\ {{1,4}}{WORD}")),
    Rule(
        signs=("7z ", "7za ", "rar "),
        form=re.compile(rf"\b(?:7z\w?|rar|unrar)\ {ARGUMENTS}-h?p{WORD}"),
    ),
    Rule(
        words=("curl", "wget", "http", "https"),
        form=re.compile(
            rf"\b(?:curl|https?|wget)\b[^\n|;]{{0,200}}?\s(?:-u|--user|-a|--auth)[ =]['\"]?[^\s:'\"]{{1,80}}:{VALUE}"
        ),
    ),
    Rule(signs=("--user",), form=re.compile(rf"--user[ =]['\"]?[^\s:'\"]{{1,80}}:{VALUE}")),
    Rule(
        words=("smbclient", "smbget", "smbmap"),
        form=re.compile(rf"\bsmb\w+\b{ARGUMENTS}\s-U\ ?['\"]?[^\s%'\"]{{1,60}}%{VALUE}"),
    ),
    Rule(signs=("pass:",), form=re.compile(rf"(?<=[\s\"'])-?-?pass(?:in|out)?\ {{1,4}}pass:{WORD}")),
    Rule(words=("htpasswd",), form=re.compile(rf"\bhtpasswd\b\ -\w*b\w*\ \S{{1,80}}\ \S{{1,80}}\ {WORD}")),
    Rule(words=("net",), form=re.compile(rf"\bnet\ user\ (?!/)\S{{1,60}}\ (?!/){WORD}", re.IGNORECASE)),
    Rule(
        words=("echo", "printf"),
        form=re.compile(
            rf"\b(?:echo|printf)\ (?:-\w\ )?[\"\x27]?(?:[\w.-]{{1,60}}:)?{WORD}['\"]?\ {{0,2}}\|\ {{0,2}}"
            r"(?=sudo\ -S|(?:sudo\ )?chpasswd|[^\n|]{0,80}--(?:password-)?stdin)"
        ),
    ),
    Rule(
        signs=("--",),
        form=re.compile(
            r"--(?:[\w-]{0,40}-)?(?:password|passwd|pass|passphrase|pwd|secret|token|api-?key|access-?key|secret-?key"
            rf"|auth-?key|credentials?)(?:\ {{1,4}}|=){WORD}",
            re.IGNORECASE,
        ),
    ),
    Rule(
        kind="key",
        words=("configure", "setx"),
        form=re.compile(
            rf"\b(?:configure\ set|setx)\ [\w.-]{{0,60}}(?:key|secret|token|password)[\w.-]{{0,20}}\ {{1,4}}{WORD}",
            re.IGNORECASE,
        ),
    ),
)
