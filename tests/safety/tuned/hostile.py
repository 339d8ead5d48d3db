"""Secrets in syntax, in disguise and over two messages, the list by which the detector is built.

␞ stands between two messages of one session.
"""

import html
import json
from urllib.parse import quote

from tests.safety.draw import Form, forms, grouped


def fullwidth(text: str) -> str:
    """The text in signs of full width, but for the marks of a secret."""
    return "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in text)


def escaped(text: str) -> str:
    """Every sign as an HTML number, but for the marks."""
    return "".join(sign if sign in "«»" else f"&#{ord(sign)};" for sign in text)


def in_url(text: str) -> str:
    return quote(text, safe="").replace("%C2%AB", "«").replace("%C2%BB", "»")


def in_json(text: str, depth: int) -> str:
    """The text as a string in JSON in a string in JSON…"""
    for _ in range(depth):
        text = json.dumps({"content": text}, ensure_ascii=False)
    return text


def _nested(depth: int, template: str) -> Form:
    return lambda draw: in_json(draw.fill(template), depth)


def _spaced(sign: str, sizes: tuple[int, ...], brand: str, template: str = "{}") -> Form:
    return lambda draw: template.replace("{}", f"«{grouped(draw.a_card(brand), sizes, sign)}»")


def _iban(sign: str, country: str, template: str = "{}") -> Form:
    return lambda draw: template.replace("{}", f"«{grouped(draw.a_iban(country), [4], sign)}»")


VENDOR = forms(
    """
sk-ant-api03 key: «sk-ant-api03-{b64url:93}AA»
export AWS_SECRET_ACCESS_KEY=«{b64:40}»
here is the token ghp: «ghp_{alnum:36}»
stripe «sk_live_{alnum:24}» in prod
«AKIA{upper36:16}» / «{b64:40}»
slack: «xoxb-{d:12}-{d:12}-{alnum:24}»
«glpat-{b64url:20}»
google «AIza{b64url:35}»
«npm_{alnum:36}» and «pypi-AgEIcHlwaS5vcmc{b64url:120}»
https://hooks.slack.com/services/T{upper36:8}/B{upper36:8}/«{alnum:24}»
"""
)
SYNTAX: list[Form] = [
    *forms(
        """
password=«{password}»
login("{user}", "«{password}»")
client.connect('{host}', '{user}', '«{password}»')
postgres://{user}:«{urlpassword}»@{host}/{word}
WIFI:T:WPA;S:{word};P:«{password}»;;
mysql --user={user} --password=«{password}»
Authenticate({user}, «{password}»)
auth=('{user}', '«{password}»')
requests.get(url, auth=("{user}", "«{password}»"))
new NetworkCredential("{user}", "«{password}»")
smtp.login('{user}@{host}', '«{password}»')
sshpass -p '«{password}»' ssh {user}@{host}
setPassword("«{password}»")
{user}:«{password}»@{host}
IDENTIFIED BY '«{password}»'
htpasswd -b .htpasswd {user} «{password}»
"""
    ),
    "net use Z: \\\\{word}\\share «{password}» /user:{user}",
    "echo '{user}:«{password}»' | chpasswd",
    "ALTER USER {user} WITH PASSWORD '«{password}»';",
    "basic_auth({user!r}, '«{password}»')".replace("{user!r}", "'{user}'"),
]
NESTED: list[Form] = [
    _nested(2, 'curl -d "password=«{password}»" https://{host}'),
    _nested(1, '{"password": "«{password}»", "user": "{user}"}'),
    _nested(2, '{"api_key": "«{alnum:32}»"}'),
    _nested(3, '{"password": "«{password}»"}'),
    _nested(2, "my password is «{password}»"),
    _nested(1, "first\nmy password is\n«{password}»"),
    lambda draw: in_json(in_json(draw.fill("Authorization: Bearer «{alnum:40}»"), 1), 2),
]
ESCAPED: list[Form] = [
    lambda draw: in_url(draw.fill("password=«{password}»")),
    lambda draw: in_url(draw.fill('{"password":"«{password}»"}')),
    lambda draw: in_url(in_url(draw.fill("token=«{alnum:32}»&x=1"))),
    lambda draw: html.escape(draw.fill('password="«{password}»"')),
    lambda draw: escaped(draw.fill("my password is «{password}»")),
    lambda draw: html.escape(draw.fill('<input type="password" value="«{password}»">')),
    lambda draw: draw.fill("my&nbsp;password&nbsp;is&nbsp;«{password}»"),
    lambda draw: draw.fill("https://{host}/?q=my%20password%20is%20") + in_url(draw.fill("«{password}»")),
    lambda draw: draw.fill("https://{host}/?q=my+password+is+") + in_url(draw.fill("«{password}»")),
    lambda draw: "".join(
        sign if sign in "«»" else f"\\u{ord(sign):04x}" for sign in draw.fill("password: «{password}»")
    ),
]
FULLWIDTH: list[Form] = [
    lambda draw: fullwidth(draw.fill("password:«{password}»")),
    lambda draw: fullwidth(draw.fill("my password is «{password}»")),
    lambda draw: "パスワード：" + fullwidth(draw.fill("«{password}»")),
    lambda draw: fullwidth("«" + draw.a_card() + "»"),
    lambda draw: fullwidth(draw.fill("«{user}@{host}»")),
    lambda draw: fullwidth(draw.fill("«ghp_{alnum:36}»")),
    lambda draw: fullwidth(draw.fill("token＝«{alnum:32}»")),
    lambda draw: draw.fill("ｐａｓｓｗｏｒｄ＝«{password}»"),
]
CARD_ODD: list[Form] = [
    _spaced(".", (4,), "visa"),
    _spaced("_", (4,), "mastercard"),
    _spaced("/", (4,), "visa", "card {} please"),
    _spaced("  ", (4,), "visa"),
    _spaced("–", (4,), "mastercard"),
    _spaced("\u00a0", (4,), "visa", "card: {}"),
    _spaced(".", (4, 6, 5), "amex"),
    _spaced(" ", (1,), "visa"),
    _spaced(" / ", (4,), "visa"),
]
IBAN_DOTTED: list[Form] = [
    _iban(".", "DE"),
    _iban(".", "FR", "IBAN {}"),
    _iban("_", "GB"),
    _iban("-", "ES", "pay to {} please"),
    _iban("/", "IT"),
    _iban("\u00a0", "NL", "Konto: {}"),
    _iban("  ", "CH"),
]
MAC: list[Form] = [
    "«{mac}»",
    "«{mac:-}»",
    lambda draw: f"eth0 HWaddr «{draw.a_mac().upper()}»",
    lambda draw: f"«{grouped(draw.a_mac(''), [4], '.')}»",
    "link/ether «{mac}» brd ff:ff:ff:ff:ff:ff",
    lambda draw: "MAC " + f"«{draw.a_mac('')}»",
]
EMAIL_DISGUISED = forms(
    """
«{user} at {word} dot org»
write to «{user} (at) {word} (dot) com»
«{user}[at]{word}[dot]org»
«{user} @ {word}.org»
«{user}[@]{word}[.]com»
«{user}(at){word}.de»
«{user}.{surname} AT {word} DOT net»
«{user}@{word} . org»
«{user}&#64;{word}.org»
«{user}%40{word}.com»
«{user} arroba {word} punto es»
«{user} chiocciola {word} punto it»
«{user} arobase {word} point fr»
«{user} ät {word} punkt de»
"""
)
PHONE_NATIONAL = forms(
    """
call me on «07700 {d:6}»
Ruf mich an: «0171 {m:1}{d:6}»
mon numéro est le «06 {d:2} {d:2} {d:2} {d:2}»
«06.{d:2}.{d:2}.{d:2}.{d:2}»
mi teléfono es «6{d:2} {d:3} {d:3}»
«(030) {m:1}{d:6}»
il mio numero è «34{m:1} {m:1}{d:6}»
«079 {m:1}{d:2} {d:2} {d:2}»
my number's «0412 {d:3} {d:3}»
WhatsApp «0176/{m:1}{d:7}»
«({m:1}{d:2}) {m:1}{d:2}-{d:4}»
bel me op «06-{m:1}{d:7}»
telefon «0{m:1}0 {m:1}{d:2} {d:2} {d:2}»
meu número é «(11) 9{d:4}-{d:4}»
電話は«090-{m:1}{d:3}-{d:4}»
"""
)
TWO_MESSAGES = forms(
    """
my password is␞«{password}»
What is your password?␞«{password}»
The password please.␞it's «{password}»
The first half of the password is «{alnum:5}{d:2}»␞and the second half is «{d:1}{alnum:6}»
my key is «sk-proj-{alnum:40}»␞and it goes on with «{alnum:40}»
Wie lautet das Passwort?␞«{password}»
quel est ton mot de passe ?␞«{password}»
my password starts with «{alnum:6}»␞and ends with «{alnum:6}»
here comes the first part of my key: «{alnum:16}»␞the rest: «{alnum:16}»
I'll send you the password next␞«{password}»
"""
)
