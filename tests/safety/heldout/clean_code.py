"""Code, configuration, logs and machines' texts in which nothing is secret."""

# ruff: noqa: E501 - texts are as wide as they are

PYTHON = '''
class Session:
    """A login session; its token is rotated every {n:1} minutes."""

    def __init__(self, user: str, password: str, token: str | None = None) -> None:
        self.user = user
        self.token = token or secrets.token_urlsafe({n:1}{d:1})
        self._password = password
        self.created_at = time.time()

    def login(self, password: str) -> bool:
        if not password:
            raise ValueError("password must not be empty")
        digest = hashlib.pbkdf2_hmac("sha256", password.encode(), self.salt, {n:1}00_000)
        return hmac.compare_digest(digest, self._stored[self.user])

api_key = os.environ["API_KEY"]
client = Client(api_key=api_key, base_url=f"https://{host}/v{version}")
tokens = tokenizer.encode(text, max_length={n:1}{d:3})
password = getpass.getpass("Password: ")
secret = config.get("secret")
for key, value in sorted(items.items(), key=lambda pair: pair[1]):
    print(f"{key}={value!r}")
'''
JAVASCRIPT = """
import { useState } from 'react';
const TOKEN_KEY = 'auth.token';
export async function login(username, password) {
  const response = await fetch(`${baseUrl}/api/v{n:1}/login`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${token}` },
    body: JSON.stringify({ username, password }),
  });
  if (!response.ok) throw new Error(`login failed: ${response.status}`);
  const { accessToken, refreshToken } = await response.json();
  localStorage.setItem(TOKEN_KEY, accessToken);
  return accessToken ?? process.env.ACCESS_TOKEN;
}
<input type="password" name="password" autocomplete="current-password" placeholder="Your password" />
document.cookie = `theme=${theme}; path=/; max-age={d:6}`;
"""
GO = """
func (c *Client) Do(ctx context.Context, req *Request) (*Response, error) {
	if c.apiKey == "" {
		return nil, errors.New("api key is empty")
	}
	req.Header.Set("Authorization", "Bearer "+c.apiKey)
	secret, err := c.store.GetSecret(ctx, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("get secret %q: %w", name, err)
	}
	c.token = token
	timeout := {n:1}{d:1} * time.Second
	return c.http.Do(req.WithContext(ctx))
}
"""
RUST = """
#[derive(Debug, Clone, Deserialize)]
pub struct Credentials {
    pub username: String,
    pub password: SecretString,
    pub token: Option<String>,
}

impl Credentials {
    pub fn from_env() -> Result<Self, Error> {
        let password = env::var("DB_PASSWORD")?;
        let secret_key = Key::<Aes256Gcm>::from_slice(&bytes[..{n:1}{d:1}]);
        Ok(Self { username: "app".into(), password: password.into(), token: None })
    }
}
let mut map: HashMap<u64, Vec<(usize, f32)>> = HashMap::with_capacity({n:1}{d:3});
"""
JAVA = """
public final class TokenService {
    private static final Logger LOG = LoggerFactory.getLogger(TokenService.class);
    private final String secretKey;

    public TokenService(@Value("${app.secret-key}") String secretKey) {
        this.secretKey = secretKey;
    }

    public String createToken(UserDetails user) {
        return Jwts.builder().setSubject(user.getUsername()).signWith(getSigningKey(), SignatureAlgorithm.HS256).compact();
    }

    public boolean validatePassword(String password) { return password.length() >= {n:1}{d:1}; }
}
"""
C = """
static int parse_token(struct lexer *lx, const char *buf, size_t len)
{
	struct token *tok = &lx->tokens[lx->count++];
	uint32_t hash = 0x{hex:8};
	tok->key = buf[0];
	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (uint8_t)buf[i]) * 0x01000193u;
	tok->hash = hash;
	return key == 0x{hex:2} ? -EINVAL : 0;
}
"""
SQL = """
CREATE TABLE users (
    id BIGINT PRIMARY KEY,
    email VARCHAR(255) NOT NULL UNIQUE,
    password_hash CHAR(60) NOT NULL,
    token TEXT,
    api_key UUID DEFAULT gen_random_uuid(),
    created_at TIMESTAMP DEFAULT now()
);
SELECT u.id, count(*) FROM users u JOIN orders o ON o.user_id = u.id WHERE o.total > {d:3}.{d:2} GROUP BY 1;
UPDATE users SET password = :password, token = NULL WHERE id = {d:6};
"""
SHELL = """
#!/usr/bin/env bash
set -euo pipefail
: "${API_TOKEN:?set API_TOKEN first}"
PASSWORD="$(pass show db/prod)"
export DB_PASSWORD="$PASSWORD" SECRET_KEY=$(cat /run/secrets/key)
curl -fsSL -H "Authorization: Bearer ${API_TOKEN}" "https://api.example.com/v1/things?limit={d:2}" | jq '.items[].id'
mysql -u root -p "$DB_NAME" < dump.sql
docker run --rm -p 8080:80 -v "$PWD:/src" -e PASSWORD nginx:1.{d:2}-alpine
for f in *.tar.gz; do tar -xzf "$f" -C "/tmp/build-{hex:8}"; done
read -rsp "Password: " password
"""
KUBERNETES = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {word}-api
  labels: {app: {word}, pod-template-hash: {hex:10}}
spec:
  replicas: {n:1}
  template:
    spec:
      containers:
        - name: api
          image: registry.example.com/{word}/api@sha256:{hex:64}
          env:
            - name: DB_PASSWORD
              valueFrom: {secretKeyRef: {name: db, key: password}}
          resources: {limits: {cpu: "{n:1}", memory: {n:1}Gi}}
      serviceAccountName: {word}
      automountServiceAccountToken: false
"""
PODS = """
NAME                            READY   STATUS    RESTARTS   AGE
{word}-api-{hex:10}-x2k9q       1/1     Running   0          {n:1}d{n:1}h
{word}-worker-{hex:9}-7mv4z     1/1     Running   {n:1}          12d
CONTAINER ID   IMAGE          COMMAND                  CREATED        STATUS
{hex:12}   redis:7.{n:1}    "docker-entrypoint.s…"   {n:1} hours ago    Up {n:1} hours
i-0{hex:16}  t3.medium  running   subnet-0{hex:16}  vpc-{hex:8}  10.{d:2}.{d:2}.{n:1}
"""
TERRAFORM = """
resource "aws_db_instance" "main" {
  identifier     = "{word}-{word}"
  engine_version = "16.{n:1}"
  username       = "app"
  password       = var.db_password
  kms_key_id     = aws_kms_key.main.arn
}
variable "db_password" {
  type      = string
  sensitive = true
}
# arn:aws:iam::{d:12}:role/{word}-deployer
"""
ENV_EXAMPLE = """
# copy to .env and fill in
DATABASE_URL=postgres://user:password@localhost:5432/app
API_KEY=your-api-key-here
SECRET_KEY=changeme
STRIPE_SECRET_KEY=sk_test_xxxxxxxxxxxxxxxxxxxxxxxx
JWT_SECRET=<generate with openssl rand -hex 32>
AWS_SECRET_ACCESS_KEY=
DEBUG=true
PORT={n:1}{d:3}
"""
NGINX = """
server {
    listen 443 ssl http2;
    server_name {word}.example.com;
    ssl_certificate     /etc/letsencrypt/live/{word}.example.com/fullchain.pem;
    ssl_certificate_key /etc/letsencrypt/live/{word}.example.com/privkey.pem;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header Authorization $http_authorization;
    location / { proxy_pass http://127.0.0.1:{n:1}{d:3}; proxy_read_timeout {d:2}s; }
    set_real_ip_from 10.0.0.0/8;
}
"""
ACCESS_LOG = """
10.{n:1}.{n:1}.{n:1} - - [12/Mar/2026:06:25:{d:2} +0000] "GET /static/app.{hex:20}.js HTTP/1.1" 200 {d:5} "-" "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
192.168.{n:1}.{d:2} - - [12/Mar/2026:06:25:{d:2} +0000] "POST /api/v1/login HTTP/1.1" 401 {d:3} "https://example.com/login" "curl/8.5.0"
127.0.0.1 - - [12/Mar/2026:06:26:{d:2} +0000] "GET /healthz HTTP/1.1" 200 2 "-" "kube-probe/1.30"
"""
SYSLOG = """
Mar 12 06:25:{d:2} web-{n:1} sshd[{d:5}]: Accepted publickey for deploy from 10.0.{n:1}.{n:1} port {d:5} ssh2: ED25519 SHA256:{b64:43}
Mar 12 06:25:{d:2} web-{n:1} systemd[1]: Started session-{d:4}.scope - Session {d:4} of User root.
Mar 12 06:25:{d:2} web-{n:1} kernel: [{d:6}.{d:6}] eth0: renamed from veth{hex:7}
Mar 12 06:26:{d:2} web-{n:1} sudo: pam_unix(sudo:auth): authentication failure; logname= uid=1000 euid=0 tty=/dev/pts/{n:1}
"""
JSON_LOG = """
{"ts":"2026-03-12T06:25:{d:2}.{d:3}Z","level":"info","msg":"request","trace_id":"{hex:32}","span_id":"{hex:16}","status":200,"ms":{d:2}.{d:3}}
{"ts":"2026-03-12T06:25:{d:2}.{d:3}Z","level":"warn","msg":"token expired","session":"{uuid}","user_id":{d:7}}
{"ts":{d:10}.{d:6},"level":"error","msg":"password check failed","attempt":{n:1},"code":"AUTH_{d:3}"}
"""
TRACE = """
Traceback (most recent call last):
  File "/usr/lib/python3.11/site-packages/{word}/client.py", line {d:3}, in request
    return self._send(token=self._token, timeout={n:1}.0)
  File "/srv/app/{word}.py", line {d:2}, in _send
    raise AuthError("invalid token: it has expired")
{word}.errors.AuthError: invalid token: it has expired (request 0x7f{hex:10})
java.lang.IllegalStateException: key {d:4} not found
	at com.example.{word}.KeyStore.load(KeyStore.java:{d:3})
	at java.base/java.lang.Thread.run(Thread.java:1583)
"""
GIT = """
commit {hex:40}
Merge: {hex:7} {hex:7}
Date:   Thu Mar 12 06:25:{d:2} 2026 +0100

    Rotate the token before it expires, and say why a password is refused

diff --git a/src/{word}.py b/src/{word}.py
index {hex:7}..{hex:7} 100644
@@ -{d:2},7 +{d:2},9 @@ def check(password):
-    if len(password) < 8:
+    if len(password) < MIN_LENGTH:
"""
PACKAGE_LOCK = """
    "node_modules/{word}": {
      "version": "{n:1}.{d:1}.{d:2}",
      "resolved": "https://registry.npmjs.org/{word}/-/{word}-{n:1}.{d:1}.{d:2}.tgz",
      "integrity": "sha512-{b64:86}==",
      "engines": {"node": ">=1{n:1}"}
    },
    "node_modules/@{word}/{word}": {
      "version": "0.{d:1}.{d:2}",
      "integrity": "sha1-{b64:27}=",
"""
CARGO_LOCK = """
[[package]]
name = "{word}-{word}"
version = "0.{d:2}.{d:1}"
source = "registry+https://github.com/rust-lang/crates.io-index"
checksum = "{hex:64}"
dependencies = ["{word}", "{word} 1.0.{d:2}"]
"""
GO_SUM = """
github.com/{word}/{word} v1.{d:1}.{d:1} h1:{b64:43}=
github.com/{word}/{word} v1.{d:1}.{d:1}/go.mod h1:{b64:43}=
golang.org/x/crypto v0.0.0-2026{month}{day}{d:6}-{hex:12} h1:{b64:43}=
"""
UV_LOCK = """
[[package]]
name = "{word}"
version = "{n:1}.{d:2}.{d:1}"
sdist = { url = "https://files.pythonhosted.org/packages/{hex:2}/{hex:2}/{hex:60}/{word}-{n:1}.{d:2}.{d:1}.tar.gz", hash = "sha256:{hex:64}", size = {d:6} }
wheels = [{ url = "https://files.pythonhosted.org/packages/{hex:2}/{hex:2}/{hex:60}/{word}-py3-none-any.whl", hash = "sha256:{hex:64}" }]
"""
YARN_LOCK = """
"{word}@^{n:1}.{d:1}.0", "{word}@^{n:1}.{d:1}.{n:1}":
  version "{n:1}.{d:1}.{n:1}"
  resolved "https://registry.yarnpkg.com/{word}/-/{word}-{n:1}.{d:1}.{n:1}.tgz#{hex:40}"
  integrity sha512-{b64:86}==
"""
IMAGE = '<img alt="a {word}" src="data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA{b64:600}AAAAAElFTkSuQmCC">'
IMAGE_JSON = '{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/4AAQSkZJRgABAQ{b64:900}/9k="}}'
CERTIFICATE = """
-----BEGIN CERTIFICATE-----
MIID{b64:60}
{b64:64}
{b64:64}
{b64:40}=
-----END CERTIFICATE-----
ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{b64:43} deploy-key
Fingerprint: SHA256:{b64:43}
"""
IDS = """
{uuid}
{uuid}
order {d:8}, sha1 {hex:40}, md5 {hex:32}, sha256 {hex:64}
ObjectId("{hex:24}")  01ARZ3NDEKTSV4RRFFQ6{d:2}G5FA
etag: W/"{hex:8}-{hex:12}"  x-request-id: {uuid}
snowflake {n:1}{d:17}, epoch {n:1}{d:12}
"""
CALLS = """
{"id": "chatcmpl-{alnum:29}", "object": "chat.completion", "model": "m", "usage": {"prompt_tokens": {d:3}, "completion_tokens": {d:2}, "total_tokens": {d:3}},
 "choices": [{"message": {"role": "assistant", "tool_calls": [{"id": "call_{alnum:24}", "type": "function", "function": {"name": "search", "arguments": "{\\"query\\": \\"{word} {word}\\"}"}}]}}]}
{"type": "tool_use", "id": "toolu_01{alnum:22}", "name": "weather", "input": {"city": "Bern"}}
"""
HEXDUMP = """
00000000  {hex:2} {hex:2} {hex:2} {hex:2} {hex:2} {hex:2} {hex:2} {hex:2}  {hex:2} {hex:2} {hex:2} {hex:2} {hex:2} {hex:2} {hex:2} {hex:2}  |.ELF............|
0x00007f{hex:10}: mov    rax,QWORD PTR [rip+0x{hex:5}]
MAC 52:54:00:{hex:2}:{hex:2}:{hex:2}  color #{hex:6}  0b{d:1}101
"""
HTTP_EXCHANGE = """
HTTP/1.1 200 OK
Date: Thu, 12 Mar 2026 06:25:{d:2} GMT
Content-Type: application/json; charset=utf-8
Content-Length: {d:4}
ETag: "{hex:32}"
Cache-Control: max-age={d:5}, public
X-RateLimit-Remaining: {d:3}
Set-Cookie: theme=dark; Path=/
"""
TESTS = """
tests/test_{word}.py::test_a_password_is_checked PASSED                                  [ {d:2}%]
tests/test_{word}.py::test_tokens_expire FAILED                                          [100%]
E       AssertionError: assert {d:3} == {d:3}
E        +  where {d:3} = len(tokens)
================= 1 failed, {d:2} passed, {n:1} warnings in {n:1}.{d:2}s =================
"""
CSS = """
.btn--primary-{n:1}x, .card__title--is-large { color: #{hex:6}; padding: {n:1}px {n:1}{n:1}px; margin: 0 auto; }
@media (min-width: {n:1}{d:2}px) { .grid-{word}-{word} { grid-template-columns: repeat({n:1}, 1fr); } }
"""
CODE: dict[str, str] = {
    name.lower(): value for name, value in list(globals().items()) if name.isupper() and name != "CODE"
}
