"""Forms of all classes that were written after the detector, and measured before anything was changed for them."""

from tests.safety.draw import Draw, Form, forms, grouped, luhn

CLOUD: list[Form] = [
    *forms(
        """
«ASIA{upper36:16}» is the temporary key id, and «IQoJb3JpZ2luX2VjE{b64:180}» its session token
ibmcloud login --apikey «{b64url:44}»
export HCLOUD_TOKEN=«{alnum:64}»
LINODE_CLI_TOKEN: «{hex:64}»
vultr.api_key = "«{upper36:36}»"
"""
    ),
    "provider \"ovh\" {\n  application_secret = \"«{hex:32}»\"\n}",
    "fastly-key: «{b64url:32}»",
    "https://{word}.blob.core.windows.net/c?sv=2024-05-04&sig=«{b64:43}%3D»&se=2026-01-01",
    "https://storage.googleapis.com/{word}/o?X-Goog-Signature=«{hex:512}»&X-Goog-Expires=900",
    "  \"clientSecret\": \"«{alnum:3}8Q~{b64url:34}»\",",
    "FLY_API_TOKEN=\"FlyV1 «fm2_{b64:240}»\"",
    "rails credentials: cloudinary://{d:15}:«{b64url:27}»@{word}",
]  # fmt: skip
CODE_HOST: list[Form] = [
    *forms(
        """
«ghu_{alnum:36}»
_auth=«{b64:40}»
npm config set //registry.npmjs.org/:_authToken «npm_{alnum:36}»
«gldt-{b64url:20}»
TRAVIS_TOKEN: "«{alnum:22}»"
nuget push x.nupkg -ApiKey «oy2{base36:43}»
GITEA_TOKEN=«{hex:40}»
"""
    ),
    '[remote "origin"]\n  url = https://{user}:«ghp_{alnum:36}»@github.com/{user}/{word}.git',
    "TWINE_PASSWORD=«pypi-AgEIcHlwaS5vcmc{b64url:150}»",
    "cargo login «{alnum:32}»",
]
PAYMENT = forms(
    """
stripe.api_key = '«rk_live_{alnum:48}»'
«whsec_{b64:32}»
MOLLIE_API_KEY=«live_{alnum:30}»
KLARNA_PASSWORD: «{alnum:16}»
«sandbox-sq0idb-{b64url:43}»
{"paypal": {"client_id": "{word}", "client_secret": "«E{b64url:79}»"}}
coinbase: {"apiSecret": "«{b64:86}==»"}
checkout.secret = "«sk_{base36:26}»"
PADDLE_WEBHOOK_SECRET=«pdl_ntfset_{base36:26}_{b64:32}»
wise token «{uuid}», keep it to yourself
"""
)
CHAT = forms(
    """
SLACK_BOT_TOKEN=«xoxb-{d:12}-{d:13}-{alnum:24}»
«xapp-1-A{upper36:10}-{d:13}-{hex:64}»
https://hooks.zapier.com/hooks/catch/{d:7}/«{base36:7}{base36:20}»/
ZOOM_CLIENT_SECRET = «{alnum:32}»
discord.login('«MT{alnum:24}.G{b64url:5}.{b64url:38}»');
bot = Bot(token='«{d:10}:AA{b64url:33}»')
https://chat.googleapis.com/v1/spaces/{upper36:11}/messages?key={word}&token=«{b64url:43}»
line_channel_access_token: «{b64:171}=»
«xoxp-{d:12}-{d:12}-{d:13}-{hex:32}»
mattermost --bearer-token «{base36:26}»
"""
)
MAIL = forms(
    """
SENDGRID_API_KEY=«SG.{b64url:22}.{b64url:43}»
mandrill: {api_key: «md-{b64url:22}»}
SPARKPOST_KEY=«{hex:40}»
AWS SES smtp password «B{b64:43}»
mailchimp('«{hex:32}-us{d:2}»')
POSTMARK_API_TOKEN: «{uuid}»
brevo key «xsmtpsib-{hex:64}-{alnum:16}»
"""
)
MODEL = forms(
    """
ANTHROPIC_API_KEY=«sk-ant-api03-{b64url:93}AA»
openai.api_key = «'sk-proj-{b64url:156}'»
HUGGING_FACE_HUB_TOKEN «hf_{letters:34}»
REPLICATE_API_TOKEN=«r8_{alnum:37}»
genai.configure(api_key='«AIza{b64url:35}»')
«gsk_{alnum:52}»
tavily: «tvly-{alnum:32}»
DEEPSEEK_API_KEY=«sk-{hex:32}»
voyage_api_key: pa-«{b64url:43}»
"x-api-key": "«{b64url:48}»"
langfuse secretKey «sk-lf-{uuid}»
"""
)


def _indented(draw: Draw) -> str:
    return "tls:\n  key: |\n    «" + draw.a_pem("EC").replace("\n", "\n    ") + "»\n"


def _concatenated(draw: Draw) -> str:
    return "String key = «" + "\n + ".join(f'"{line}\\n"' for line in draw.a_pem("RSA").split("\n")) + "»;"


PRIVATE_KEY: list[Form] = [
    "«{pem:DSA}»",
    _indented,
    _concatenated,
    *forms(
        """
«AGE-SECRET-KEY-1{upper36:58}»
wg set wg0 private-key <(echo «{b64:42}E=»)
ETH_PRIVATE_KEY=«{hex:64}»
web3.eth.accounts.privateKeyToAccount("«0x{hex:64}»")
recovery phrase is «{words:24}»
wallet import format: «K{base58:51}»
"""
    ),
    "untrusted comment: minisign encrypted secret key\n«RWRTY0Iy{b64:204}==»",
]
WEB_TOKEN = forms(
    """
Set-Cookie: auth=«{jwt:HS256}»; HttpOnly
{"access_token": "«{jwt:RS256}»", "expires_in": 3600}
id_token=«{jwt:ES256}»&state={word}
Sec-WebSocket-Protocol: bearer, «{jwt:HS256}»
the refresh token was «{b64url:64}»
"refreshToken":"«{uuid}»"
v2.local.«{b64url:120}»
"""
)
COOKIE = forms(
    """
Cookie: PHPSESSID=«{base36:26}»; lang=de
set-cookie: connect.sid=«s%3A{b64url:32}.{b64url:43}»; Path=/
curl -b 'JSESSIONID=«{hexupper:32}»' https://{host}/
document.cookie = 'sessionid=«{base36:32}»'
Cookie: laravel_session=«eyJ{alnum:180}»
requests.get(url, cookies={'.AspNetCore.Session': '«{b64:160}»'})
"""
)
LINK = forms(
    """
https://{host}/reset?token=«{hex:40}»
https://{host}/invite/accept?code=«{b64url:32}»
https://{host}/magic-link?auth=«{alnum:48}»&next=/
wss://{host}/live?access_token=«{b64url:43}»
https://api.{host}/v1/x?api_key=«{alnum:32}»
http://{user}:«{urlpassword}»@{host}/feed.xml
"""
)
OPAQUE = forms(
    """
«{alnum:32}»
«{b64url:43}»
«{b64:64}»
«{alnum:24}{upper:4}{d:4}»
«{base58:44}»
"""
)
DATABASE_URL = forms(
    """
DATABASE_URL=postgresql+asyncpg://{user}:«{urlpassword}»@db:5432/{word}
spring.datasource.url=jdbc:postgresql://db/{word}?user={user}&password=«{alnum:14}»
Data Source=db;Initial Catalog={word};User Id={user};Pwd=«{password}»;
amqp://{user}:«{urlpassword}»@rabbit:5672//
ldap://cn=admin:«{alnum:12}»@ldap.{host}:389
mysql -h db -u {user} --password=«{alnum:14}» {word}
redis://{user}:«{urlpassword}»@cache:6379/1?ssl=true
psycopg2.connect(host='db', user='{user}', password='«{password}»')
"""
)
PROSE = forms(
    """
hey, the root password for {word}-03 is «{password}»
Sure! Username: {user}, password: «{password}»
The new Wi-Fi passphrase: «{words:4}»
Ich habe dein Passwort auf «{password}» gesetzt.
mi contraseña es «{password}»
votre mot de passe provisoire : «{password}»
la mia password è «{password}»
user {user}, pass «{password}»
My PIN is «{d:4}».
The door code is «{d:5}».
PW = «{password}»
Please reset my password to «{password}».
I keep typing «{password}» as my password and it fails
Passwort: «{password}»
"""
)
CONFIG: list[Form] = [
    "auth:\n  username: {user}\n  password: \"«{password}»\"",
    "<add key=\"SmtpPassword\" value=\"«{password}»\" />",
    "{\n  \"database\": {\n    \"password\": \"«{password}»\"\n  }\n}",
    "bind_dn = cn=x\nbind_password = «{alnum:16}»",
    "'password' => '«{password}»',",
    "password=«{password}»\n",
    *forms(
        """
wifi.password = «{password}»
spring.mail.password: «{alnum:16}»
{user}:«$2y$10${b64url:53}»
DB_PASS="«{password}»"
config.password = '«{password}»'
imap_pass «{alnum:16}»
"""
    ),
]  # fmt: skip
COMMAND_LINE = forms(
    """
mysqldump -u {user} -p'«{alnum:12}»' {word} > dump.sql
export DB_PASSWORD='«{password}»'
az login --service-principal -u {uuid} -p «{alnum:3}8Q~{b64url:34}»
curl -H "X-API-Key: «{alnum:32}»" https://{host}/v1
http POST {host}/login password=«{alnum:12}»
vault login «hvs.{b64url:24}»
ansible-playbook x.yml -e 'db_password=«{alnum:14}»'
mc alias set {word} https://{host} {alnum:20} «{alnum:40}»
rclone obscure «{alnum:14}»
psql "host=db user={user} password=«{alnum:14}»"
gh auth login --with-token <<< «gho_{alnum:36}»
sudo useradd -p «{alnum:13}» {user}
"""
)
HEADER = forms(
    """
Authorization: token «{hex:40}»
Authorization: Bearer «{hex:64}»
X-Api-Token: «{alnum:36}»
x-access-token: «{jwt:HS256}»
Authorization: Digest username="{user}", response="«{hex:32}»"
X-Gitlab-Token: «{alnum:20}»
Api-Secret: «{b64:43}=»
x-auth-token: «{uuid}»
"""
)
ENVIRONMENT = forms(
    """
POSTGRES_PASSWORD=«{password}»
AUTH0_CLIENT_SECRET=«{b64url:64}»
DJANGO_SUPERUSER_PASSWORD=«{password}»
FERNET_KEY=«{b64url:43}=»
export VAULT_TOKEN=«hvs.{b64url:24}»
NPM_TOKEN=«npm_{alnum:36}»
LDAP_BIND_PASSWORD=«{password}»
BASIC_AUTH={user}:«{password}»
HMAC_SECRET='«{hex:64}»'
SSH_PASS=«{alnum:12}»
"""
)
EMAIL = forms(
    """
Reply-To: "{user}" <«{surname}.{user}@{host}»>
ping «{user}@{word}.co.jp» about it
contact: «{user} (at) {word} (dot) org»
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64:43} «{user}@{host}»
{"user":{"email":"«{user}.{d:2}@{host}»"}}
«{user}[at]{word}.de»
«{user}@{word}.{word}.example.org», thanks
smtp.sendmail('«{user}@{host}»', to)
"""
)


def _card(brand: str, sizes: tuple[int, ...], sign: str, around: str) -> Form:
    return lambda draw: draw.fill(around).replace("CARD", f"«{grouped(draw.a_card(brand), sizes, sign)}»")


CARD: list[Form] = [
    _card("visa", (4,), "-", "my visa is CARD, valid thru 03/28"),
    _card("mastercard", (4,), " ", "Zahlung mit CARD"),
    _card("amex", (4, 6, 5), "-", "CARD"),
    _card("discover", (16,), "", "<cardNumber>CARD</cardNumber>"),
    _card("visa", (16,), "", "4242? no: CARD"),
    _card("jcb", (16,), "", "card=CARD&cvv=123"),
    _card("mastercard", (16,), "", "pan: 'CARD'"),
]


def _iban(country: str, around: str, sign: str = " ") -> Form:
    return lambda draw: draw.fill(around).replace("ACCOUNT", f"«{grouped(draw.a_iban(country), (4,), sign)}»")


IBAN: list[Form] = [
    _iban("IE", "Send it to ACCOUNT."),
    _iban("DK", "konto ACCOUNT"),
    _iban("DE", "<IBAN>ACCOUNT</IBAN>", ""),
    _iban("FR", "compte ACCOUNT BIC BNPAFRPP"),
    _iban("ES", "'iban': 'ACCOUNT'", ""),
    _iban("PL", "IBAN:ACCOUNT", "\u00a0"),
]
PHONE_INTERNATIONAL = forms(
    """
«+353 1 {m:1}{d:2} {d:4}»
WhatsApp «+62 812 {m:1}{d:3} {d:4}»
(«+32 470 {d:2} {d:2} {d:2}»)
«+351 91{d:1} {d:3} {d:3}»
«+44-20-7946-{d:4}»
«+1.206.{m:1}{d:1}{m:1}.{d:4}»
«+65 9{d:3} {d:4}»
Mobil «+49151{m:1}{d:7}»
«+971 50 {m:1}{d:2} {d:4}»
"""
)
PHONE_NATIONAL = forms(
    """
Rufen Sie mich unter «0170 {m:1}{d:6}» an
tel «01 {m:1}{d:2} {d:2} {d:2} {d:2}»
text me: «(312) {m:1}{d:1}{m:1}-{d:4}»
phone_number=«415-{m:1}{d:1}{m:1}-{d:4}»
móvil «6{d:2}-{d:3}-{d:3}»
Mobile: «07{m:1}{d:2} {d:3} {d:3}»
you can reach me at «206-{m:1}{d:1}{m:1}-{d:4}»
cellulare «347 {m:1}{d:6}»
"""
)
IP = forms(
    """
banned «{ipv4}» for 10 minutes
login from IP «{ipv4}»
«{ipv4}»:51234 -> 10.0.0.7:443
remote_ip="«{ipv4}»" status=200
SRC=«{ipv6}» DST=fe80::1
tcp 0 0 10.0.0.2:22 «{ipv4}»:40112 ESTABLISHED
nc «{ipv4}» 4444
"""
)


def _ssn(draw: Draw) -> str:
    number = f"{draw.random.randint(101, 665)}-{draw.random.randint(1, 99):02d}-{draw.random.randint(1, 9999):04d}"
    return f'"ssn": "«{number}»"'


def _sin(draw: Draw) -> str:
    body = draw.pick("124567") + draw.of("0123456789", 7)
    return f"Social Insurance Number: «{grouped(body + luhn(body), (3,), '-')}»"


def _nhs(draw: Draw) -> str:
    while True:
        body = draw.of("123456789", 1) + draw.of("0123456789", 8)
        check = 11 - sum(int(digit) * (10 - place) for place, digit in enumerate(body)) % 11
        if check != 10:
            return f"NHS number «{grouped(f'{body}{check % 11}', (3, 3, 4))}»"


NATIONAL_ID: list[Form] = [
    _ssn,
    _sin,
    _nhs,
    *forms(
        """
Reisepass Nr. «C0{upper36:1}{d:6}»
passport: «{d:9}»
driver's license «D{d:7}»
Aadhaar «{m:1}{d:3} {d:4} {d:4}»
Personalausweisnummer: «L0{d:7}»
ID card number «{upper:2}{d:7}»
NIE «X{d:7}{upper:1}»
"""
    ),
]
