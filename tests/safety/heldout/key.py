"""Keys and tokens of vendors, by class. A form that is nothing but a secret is put into some neutral text."""

from tests.safety.draw import Draw, Form, forms

CLOUD: list[Form] = [
    *forms(
        """
DefaultEndpointsProtocol=https;AccountName={word};AccountKey=«{b64:86}==»;EndpointSuffix=core.windows.net
Endpoint=sb://{word}.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=«{b64:43}=»
«LTAI5t{alnum:18}»
accessKeySecret: "«{alnum:30}»"
«AKID{alnum:32}»
«dapi{hex:32}»
«hvs.{b64url:90}»
«{alnum:14}.atlasv1.{b64url:67}»
«dp.pt.{alnum:43}»
«pul-{hex:40}»
«NRAK-{upper36:27}»
«glsa_{alnum:32}_{hex:8}»
«sntryu_{hex:64}»
«dt0c01.{base32:24}.{base32:64}»
«sbp_{hex:40}»
«pscale_tkn_{b64url:43}»
«fo1_{b64url:43}»
«nfp_{alnum:36}»
«tskey-auth-{alnum:12}CNTRL-{alnum:32}»
«{alnum:3}8Q~{b64url:34}»
«v1.0-{hex:24}-{hex:146}»
«HRKU-AA{b64url:58}»
«amzn.mws.{uuid}»
«ABSK{b64:108}»
«GOCSPX-{b64url:28}»
«1//0{b64url:60}»
«doo_v1_{hex:64}»
«AAAA{alnum:7}:APA91b{b64url:134}»
aws_session_token = «FwoGZXIvYXdzE{b64:220}»
"""
    ),
    "[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = «{b64:40}»",
    *forms(
        """
os.environ['CLOUDFLARE_API_KEY'] = '«{hex:37}»'
heroku_api_key: «{uuid}»
DD_APP_KEY=«{hex:40}»
scw_secret_key: «{uuid}»
algolia: {"applicationId": "{upper36:10}", "adminKey": "«{hex:32}»"}
"""
    ),
]
CODE_HOST = forms(
    """
«glsoat-{b64url:20}»
«glagent-{b64url:50}»
«ATBB{alnum:32}»
«ATATT3xFfGF0{b64url:170}={hexupper:8}»
«rubygems_{hex:48}»
«cio{alnum:32}»
«oy2{base36:43}»
«CLOJARS_{hex:60}»
«bkua_{hex:40}»
«sgp_{hex:16}_{hex:40}»
«AKCp{alnum:69}»
«squ_{hex:40}»
«CCIPAT_{alnum:22}_{hex:40}»
curl -H 'Authorization: token «{hex:40}»' https://git.example.org/api/v1/user
//registry.example.com/:_authToken=«{uuid}»
git clone https://{user}:«{base36:52}»@dev.azure.com/{word}/_git/{word}
CODECOV_TOKEN=«{uuid}»
jenkins.api.token=«11{hex:32}»
SNYK_TOKEN: «{uuid}»
remote: https://oauth2:«{alnum:20}»@git.example.com/{user}/{word}.git
bundle config gems.example.com {user}:«{alnum:32}»
"""
)
PAYMENT = forms(
    """
«sq0atp-{b64url:22}»
«EAAA{b64url:60}»
«access_token$production${base36:16}${hex:32}»
razorpay.configure(key_id="rzp_live_{alnum:14}", key_secret="«{alnum:24}»")
«access-production-{uuid}»
«FLWSECK-{hex:32}-X»
«live_{alnum:30}»
«pdl_live_apikey_{base36:26}_{alnum:22}_{alnum:3}»
ADYEN_API_KEY=«AQE{b64:90}»
«APP_USR-{d:16}-{d:6}-{hex:32}-{d:9}»
PAYPAL_CLIENT_SECRET=«E{b64url:79}»
«xnd_production_{alnum:58}»
«skey_live_{base36:19}»
«shippo_live_{hex:40}»
«EZAK{alnum:54}»
braintree.private_key = '«{hex:32}»'
«sk_sbox_{base36:26}»
{"merchant": "{word}", "secretKey": "«{alnum:40}»"}
"""
)
CHAT: list[Form] = [
    *forms(
        """
«https://hooks.slack.com/services/T{upper36:8}/B{upper36:8}/{alnum:24}»
«https://discord.com/api/webhooks/{d:18}/{b64url:68}»
«https://{word}.webhook.office.com/webhookb2/{uuid}@{uuid}/IncomingWebhook/{hex:32}/{uuid}»
«M{alnum:23}.G{alnum:5}.{b64url:38}»
«{d:10}:AA{b64url:33}»
TWILIO_AUTH_TOKEN=«{hex:32}»
«SK{hex:32}»
PASS «oauth:{base36:30}»
«EAAC{alnum:180}»
«AAAAAAAAAAAAAAAAAAAAA{alnum:40}%3D{alnum:48}»
«syt_{b64:12}_{alnum:20}_{alnum:6}»
«ntn_{alnum:46}»
«secret_{alnum:43}»
«pat{alnum:14}.{hex:64}»
«1/{d:16}:{hex:32}»
«figd_{b64url:40}»
«sl.{b64url:140}»
«pat-na1-{uuid}»
«tfp_{alnum:44}_{alnum:14}»
"""
    ),
    "email={user}@example.com\nkey=«{alnum:32}»\nsite=https://chat.example.com",
    "X-Auth-Token: «{b64url:43}»",
]
MAIL = forms(
    """
«key-{hex:32}»
curl -s --user 'api:«{hex:32}-{hex:8}-{hex:8}»' https://api.mail.example/v3
«{hex:32}-us{d:2}»
X-Postmark-Server-Token: «{uuid}»
«re_{alnum:8}_{alnum:24}»
«xkeysib-{hex:64}-{alnum:16}»
«mlsn.{hex:64}»
Authorization: «{hex:40}»
SMTP_PASSWORD=«B{b64:43}»
MJ_APIKEY_PRIVATE=«{hex:32}»
EMAIL_HOST_PASSWORD = "«{lower:4} {lower:4} {lower:4} {lower:4}»"
«1000.{hex:32}.{hex:32}»
smtp_pass: «{alnum:20}»
"""
)
MODEL = forms(
    """
«xai-{alnum:80}»
«pplx-{alnum:48}»
«tgp_v1_{b64url:43}»
«fw_{alnum:24}»
«csk-{base36:48}»
«pa-{b64url:43}»
«jina_{hex:32}{alnum:28}»
«sk_{hex:48}»
«pcsk_{alnum:5}_{alnum:63}»
«lsv2_pt_{hex:32}_{hex:10}»
WANDB_API_KEY=«{hex:40}»
«fc-{hex:32}»
«e2b_{hex:40}»
«rpa_{upper36:43}»
export MISTRAL_API_KEY=«{alnum:32}»
cohere.Client('«{alnum:40}»')
Authorization: Key «{uuid}:{hex:32}»
Authorization: Token «{hex:40}»
AZURE_OPENAI_API_KEY: «{alnum:84}»
api-key: «{hex:32}»
client = ZhipuAI(api_key="«{hex:32}.{alnum:16}»")
«nk-{b64url:43}»
«AQ.Ab8R{b64url:45}»
«sk-lf-{uuid}»
"""
)


def _phrase(draw: Draw) -> str:
    return f"seed phrase: «{draw.a_words('12')}»"


def _escaped(draw: Draw) -> str:
    return '{"type": "service_account", "private_key": "«' + draw.a_pem("").replace("\n", "\\n") + '»"}'


def _one_line(draw: Draw) -> str:
    return 'SIGNING_KEY="«' + draw.a_pem("EC").replace("\n", "") + '»"'


def _putty(draw: Draw) -> str:
    lines = "\n".join(draw.fill("{b64:64}") for _ in range(14))
    public = "\n".join(draw.fill("{b64:64}") for _ in range(6))
    head = f"PuTTY-User-Key-File-3: ssh-rsa\nEncryption: none\nComment: key\nPublic-Lines: 6\n{public}\n"
    return f"{head}Private-Lines: 14\n«{lines}»\nPrivate-MAC: {draw.fill('{hex:64}')}"


def _pgp(draw: Draw) -> str:
    lines = "\n".join(draw.fill("{b64:64}") for _ in range(20))
    name = "PGP PRIVATE KEY BLOCK"
    return f"-----BEGIN {name}-----\nVersion: GnuPG v2\n\n«{lines}»\n={draw.fill('{b64:4}')}\n-----END {name}-----"


PRIVATE_KEY: list[Form] = [
    "«{pem:EC}»",
    "«{pem:OPENSSH}»",
    "Here it is:\n«{pem:ENCRYPTED}»\nThanks!",
    _escaped,
    _one_line,
    _putty,
    _pgp,
    "[Interface]\nPrivateKey = «{b64:42}A=»\nAddress = 10.0.0.2/24",
    *forms(
        """
{"kty": "EC", "crv": "P-256", "x": "{b64url:43}", "y": "{b64url:43}", "d": "«{b64url:43}»"}
DEPLOYER_PRIVATE_KEY=«0x{hex:64}»
my private key is «0x{hex:64}», keep it safe
«5{base58:50}»
«L{base58:51}»
«xprv9s21ZrQH143K{base58:96}»
«nsec1{bech32:58}»
"""
    ),
    _phrase,
    "otpauth://totp/{word}:{user}?secret=«{base32:32}»&issuer={word}",
    "client-key-data: «LS0tLS1CRUdJTiBSU0EgUFJJVkFURSBLRVktLS0tLQo{b64:800}==»",
    "<RSAKeyValue><Modulus>{b64:342}==</Modulus><Exponent>AQAB</Exponent><D>«{b64:342}==»</D></RSAKeyValue>",
]
WEB_TOKEN = forms(
    """
«{jwt:ES256}»
«{jwt:RS256}»
«{jwt:none}»
id_token=«{jwt:RS256}»&state=x
https://app.example.com/cb#access_token=«{jwt:HS256}»&token_type=bearer
Cookie: auth=«{jwt:HS256}»
«eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6IkEyNTZHQ00ifQ.{b64url:342}.{b64url:16}.{b64url:200}.{b64url:22}»
«v4.public.{b64url:180}»
«v2.local.{b64url:120}.{b64url:22}»
«gAAAAAB{b64url:93}»
«MDAx{b64url:180}»
{"refresh_token": "«{jwt:ES512}»", "expires_in": 3600}
"""
)
COOKIE: list[Form] = [
    "Cookie: sessionid=«{base36:32}»; csrftoken=«{alnum:32}»",
    "Set-Cookie: sid=«{b64url:32}»; Path=/; HttpOnly; Secure",
    "GET / HTTP/1.1\nHost: shop.example\nCookie: PHPSESSID=«{base36:26}»",
    *forms(
        """
JSESSIONID=«{hexupper:32}»
connect.sid=«s%3A{b64url:32}.{alnum:43}»
Set-Cookie: ASP.NET_SessionId=«{base36:24}»; path=/; SameSite=Lax
laravel_session=«eyJpdiI6I{alnum:180}%3D»
document.cookie = "auth_session=«{alnum:40}»; max-age=3600"
curl -b 'sess=«{hex:40}»' https://shop.example/cart
"""
    ),
    ".example.com\tTRUE\t/\tTRUE\t1999999999\tsession_token\t«{b64url:60}»",
    "remember_user_token=«{alnum:60}--{hex:40}»",
    '-H "cookie: __Secure-next-auth.session-token=«{b64url:120}»"',
]
LINK = forms(
    """
https://{word}.blob.core.windows.net/c/f.txt?sv=2022-11-02&sr=b&sp=r&se=2030-01-01&sig=«{b64url:42}%3D»
https://{word}.s3.amazonaws.com/f?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=600&X-Amz-Signature=«{hex:64}»
https://storage.googleapis.com/{word}/f?X-Goog-Expires=600&X-Goog-Signature=«{hex:128}»
https://api.example.com/v1/items?access_token=«{alnum:40}»&page=2
https://api.example.com/geo?q=Bern&apikey=«{hex:32}»
https://example.com/reset-password?token=«{b64url:43}»
https://example.com/login?code=«{b64url:48}»&state={hex:16}
https://d111111abcdef8.cloudfront.net/f?Expires=1999999999&Signature=«{b64url:128}»&Key-Pair-Id=K{upper36:13}
wss://stream.example.com/?auth=«{alnum:48}»
https://meet.example.com/j/{d:10}?pwd=«{alnum:32}»
https://example.com/webhook?secret=«{alnum:24}»
"""
)
OPAQUE = forms(
    """
«{alnum:32}»
«{alnum:40}»
«{alnum:64}»
«{b64url:43}»
«{base36:40}»
«{b64:43}=»
«{b64:86}==»
«{alnum:24}.{alnum:24}»
"""
)
