"""Keys and tokens on which the detector was tuned."""

from tests.safety.draw import Draw, Form, forms

CLOUD = forms(
    """
«AKIA{base32:16}»
«ASIA{base32:16}»
AWS_SECRET_ACCESS_KEY=«{b64:40}»
aws_secret_access_key: "«{b64:40}»"
secret: «{b64:40}»
«AIza{b64url:35}»
«ya29.{b64url:120}»
AZURE_STORAGE_KEY=«{b64:86}==»
AZURE_CLIENT_SECRET: «{alnum:37}»
«dop_v1_{hex:64}»
«hvb.{b64url:120}»
VAULT_TOKEN=«s.{alnum:24}»
«sntrys_eyJ{b64url:120}»
«glc_eyJ{b64:100}»
«rnd_{alnum:32}»
LINODE_TOKEN=«{hex:64}»
«PMAK-{hex:24}-{hex:34}»
«ops_eyJ{b64url:200}»
CLOUDFLARE_API_TOKEN=«{b64url:40}»
VERCEL_TOKEN=«{alnum:24}»
fly_token: «FlyV1 fm2_{b64:120}»
DATADOG_API_KEY: «{hex:32}»
railway_token = '«{uuid}»'
ibm = {"apikey": "«{b64url:44}»"}
«CFPAT-{b64url:43}»
«eu01xx{hex:64}NRAL»
«tskey-api-{alnum:12}-{alnum:32}»
«hf_oauth_eyJ{b64url:120}»
«p8e-{alnum:32}»
«AccessKey {alnum:40}»
«EKP{base36:30}»
«rdme_{base36:70}»
«fio-u-{b64url:64}»
v2:{uuid}:«{alnum:40}»
«ddapi-{hex:32}»
«live:{alnum:30}»
SONAR_TOKEN=«{hex:40}»
«ovh-{alnum:16}-{alnum:32}»
«A3-{upper36:6}-{upper36:6}-{upper36:5}-{upper36:5}-{upper36:5}»
"""
)
CODE_HOST = forms(
    """
«ghp_{alnum:36}»
«gho_{alnum:36}»
«ghu_{alnum:36}»
«ghs_{alnum:36}»
«ghr_{alnum:76}»
«github_pat_{alnum:22}_{alnum:59}»
«glpat-{b64url:20}»
«gldt-{b64url:20}»
«glrt-{b64url:20}»
«npm_{alnum:36}»
«pypi-AgEIcHlwaS5vcmc{b64url:150}»
«dckr_pat_{b64url:27}»
«sgp_local_{hex:40}»
«sqp_{hex:40}»
http.extraheader: Authorization: Basic «{basic}»
https://x-access-token:«ghs_{alnum:36}»@github.com/{user}/{word}
BITBUCKET_APP_PASSWORD=«{alnum:20}»
TRAVIS_TOKEN: «{alnum:22}»
"""
)
PAYMENT = forms(
    """
«sk_live_{alnum:24}»
«sk_test_{alnum:99}»
«rk_live_{alnum:24}»
«whsec_{b64:32}»
«shpat_{hex:32}»
«shpss_{hex:32}»
«sq0csp-{b64url:43}»
«FLWSECK_TEST-{hex:32}-X»
«test_{alnum:30}»
PLAID_SECRET=«{hex:30}»
PAYPAL_SECRET: '«{b64url:80}»'
coinbase_api_secret = «{alnum:32}»
«sandbox_{b64url:40}»
«klarna_live_api_{b64url:80}»
«EZTK{alnum:54}»
«key_{alnum:22}»
«sb_secret_{alnum:22}_{alnum:8}»
«acme_prod_{base36:20}»
«tok_sandbox_{base36:18}»
«api_key_{base36:16}»
«{hex:32}.{hex:64}»
«access-sandbox-{uuid}»
«live_{hex:35}»
«duffel_test_{b64url:43}»
«sk_test_{uuid}»
«tok_live|{alnum:32}»
«ps_{hex:20}.{hex:40}»
«sq0idp-{b64url:22}»
«pk.{alnum:20}:{alnum:30}»
«prod_{d:8}_{hex:40}»
«MK_{upper36:24}»
«mch${alnum:12}${alnum:32}»
cvv2_key: «{alnum:32}»
"""
)
CHAT = forms(
    """
«xoxb-{d:12}-{d:12}-{alnum:24}»
«xoxp-{d:11}-{d:11}-{d:11}-{hex:32}»
«xapp-1-A{upper36:10}-{d:12}-{hex:64}»
«https://hooks.example.com/services/T{upper36:8}/B{upper36:8}/{alnum:24}»
«N{alnum:23}.Y{alnum:5}.{b64url:27}»
bot token: «{d:9}:AA{b64url:33}»
«lin_api_{alnum:40}»
TWITCH_OAUTH=«oauth:{base36:30}»
«IGQVJ{b64url:150}»
«dapi_secret_{alnum:40}»
«patA{alnum:13}.{hex:64}»
INTERCOM_TOKEN=«dG9r{b64:56}=»
«mfa.{b64url:84}»
«xoxe.xoxp-1-{b64:160}»
«2/{d:16}/{d:16}:{hex:32}»
«pk_{d:8}_{upper36:32}»
https://hooks.zapier.com/hooks/catch/«{d:7}/{alnum:7}/»
https://open.feishu.cn/open-apis/bot/v2/hook/«{uuid}»
https://oapi.dingtalk.com/robot/send?access_token=«{hex:64}»
«{b64:172}=»
«a{base36:29}»
«o.{alnum:32}»
«{d:15}|{alnum:27}»
«CL-{base36:10}:{alnum:32}»
https://chat.googleapis.com/v1/spaces/{alnum:11}/messages?key=AIza{b64url:35}&token=«{b64url:43}»
mattermost_token: «{base36:26}»
"""
)
MAIL = forms(
    """
«SG.{b64url:22}.{b64url:43}»
MAILGUN_API_KEY=«key-{hex:32}»
MAILCHIMP_API_KEY: «{hex:32}-us{d:1}»
POSTMARK_TOKEN=«{uuid}»
«xsmtpsib-{hex:64}-{alnum:16}»
SPARKPOST_KEY='«{hex:40}»'
X-Mail-Key: «{alnum:40}»
"""
)
MODEL = forms(
    """
«sk-{alnum:48}»
«sk-proj-{b64url:120}»
«sk-svcacct-{b64url:120}»
«sk-ant-api03-{b64url:93}AA»
«sk-or-v1-{hex:64}»
«sk-{hex:32}»
«hf_{letters:34}»
«r8_{alnum:37}»
«gsk_{alnum:52}»
«nvapi-{b64url:64}»
«tvly-{alnum:32}»
«lsv2_sk_{hex:32}_{hex:10}»
TOGETHER_API_KEY=«{hex:64}»
COHERE_API_KEY: «{alnum:40}»
OpenAI(api_key="«sk-{alnum:48}»")
elevenlabs key: «{hex:32}»
"""
)


def _json_pem(draw: Draw) -> str:
    return '{"private_key": "«' + draw.a_pem("RSA").replace("\n", "\\n") + '»"}'


PRIVATE_KEY: list[Form] = [
    "«{pem:RSA}»",
    "«{pem:DSA}»",
    "key:\n«{pem}»\n",
    _json_pem,
    *forms(
        """
«AGE-SECRET-KEY-1{upper36:58}»
private_key: «{hex:64}»
{"kty": "OKP", "crv": "Ed25519", "x": "{b64url:43}", "d": "«{b64url:43}»"}
«K{base58:51}»
ETH_PRIVATE_KEY=«{hex:64}»
mnemonic = «{words:12}»
PresharedKey = «{b64:43}=»
"""
    ),
    "-----BEGIN RSA PRIVATE KEY-----\n«{b64:64}\n{b64:64}»",
    "tls.key: «LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk{b64:800}»",
]
WEB_TOKEN = forms(
    """
«{jwt:HS256}»
«{jwt:EdDSA}»
token=«{jwt:RS256}»
Authorization: Bearer «{jwt:ES256}»
{"access_token": "«{jwt:HS256}»"}
«v3.local.{b64url:150}»
"""
)
COOKIE = forms(
    """
Cookie: session=«{alnum:32}»
Cookie: theme=dark; sessionid=«{base36:32}»; lang=en
Set-Cookie: token=«{b64url:40}»; HttpOnly; Path=/
PHPSESSID=«{base36:26}»
curl --cookie 'session_id=«{hex:32}»' https://x.example
_myapp_session=«{b64:160}--{hex:40}»
"""
)
LINK = forms(
    """
https://api.example.com/x?api_key=«{alnum:32}»
https://example.com/x?sig=«{b64url:43}»&se=2030
https://example.com/verify?token=«{hex:64}»
https://b.s3.amazonaws.com/k?X-Amz-Security-Token=«{b64url:200}»&X-Amz-Signature=«{hex:64}»
https://example.com/?key=«{alnum:39}»
https://example.com/invite/«{b64url:43}»
"""
)
OPAQUE = forms(
    """
«{alnum:28}»
«{alnum:48}»
«{b64url:32}»
«{b64url:64}»
«{base36:32}»
«{b64:64}»
"""
)
