"""Documents without secrets on which the detector was tuned; beside them, the repository itself."""

# ruff: noqa: E501 - texts are as wide as they are

PYTHON = """
def connect(host, port={n:1}{d:3}, user=None, password=None, token="", *, timeout={n:1}.0):
    password = password or os.getenv("DB_PASSWORD") or keyring.get_password("db", user)
    if token is not None and password is None:
        headers["Authorization"] = f"Bearer {token}"
    self.token = token
    count = {n:1}
    secret: bytes = hmac.new(key, msg, "sha256").digest()
    passwords = [Password(value) for value in values]
    args.add_argument("--password", help="the password of the user")
    token = next(tokens)
    self.assertEqual(token.kind, TokenKind.NAME)
    return Database(user=user, password=password, secret=self.secret, api_key=settings.api_key)
"""
TYPESCRIPT = """
interface Login { username: string; password: string; token?: string | null; secret: Buffer }
const schema = z.object({ password: z.string().min({n:1}), token: z.string().uuid() });
const { data, error } = useQuery({ queryKey: ['token', userId], queryFn: () => getToken(userId) });
export const selectToken = (state: RootState) => state.auth.token;
if (password !== confirmPassword) { setError('Passwords do not match'); }
"""
JSON_SCHEMA = """
{"type": "object", "properties": {"password": {"type": "string", "minLength": {n:1}}, "token": {"type": "string", "format": "uuid"},
 "secret": {"$ref": "#/definitions/secret"}}, "required": ["password"], "$id": "https://example.com/schema.json"}
"""
YAML = """
secretName: {word}-tls
password: ${DB_PASSWORD}
token: {{ .Values.token }}
api_key: !secret api_key
secrets:
  - {word}
max_tokens: {n:1}{d:3}
auth: true
"""
KOTLIN = """
data class User(val name: String, val password: String, val token: Token? = null)
val token = tokenProvider.createToken(authentication)
private val secret: String by lazy { environment.getProperty("jwt.secret") }
"""
RUBY = """
  validates :password, presence: true, length: { minimum: {n:1} }
  def authenticate(password)
    user = User.find_by(email: params[:email])
    session[:token] = user.token if user&.authenticate(params[:password])
  end
"""
CPP = """
std::string password = readline("Password: ");
const auto token = lexer.next_token();
std::unordered_map<std::string, std::vector<Token>> tokens;
template <typename Key, typename Value> struct Cache { Key key; Value value; uint64_t hash{0x{hex:16}}; };
"""
MAKE = """
deploy: ; kubectl create secret generic app --from-literal=password="$(PASSWORD)"
	docker build --build-arg TOKEN=$(TOKEN) -t app:{hex:7} .
"""
LOG = """
[2026-03-12 06:25:{d:2},{d:3}] INFO  {word}: connected to 10.0.{n:1}.{n:1}:5432 in {n:1}.{d:2} ms (token refreshed)
[2026-03-12 06:25:{d:2},{d:3}] WARN  {word}: password authentication failed for user "app"
[2026-03-12 06:25:{d:2},{d:3}] DEBUG {word}: key=user:{d:6} hit=true token_count={d:4} secret=<redacted>
"""
PIP = """
Collecting {word}=={n:1}.{d:1}.{d:2}
  Downloading {word}-{n:1}.{d:1}.{d:2}-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl (1.{d:1} MB)
Requirement already satisfied: {word}>=1.{d:1} in ./.venv/lib/python3.11/site-packages (2.{d:1}.{d:1}.{n:1})
--hash=sha256:{hex:64}
"""
IDS = """
{uuid} {hex:40} {hex:64} cus_{alnum:14} req_{alnum:14} msg_{alnum:24} call_{alnum:24} run-{hex:8} pod-{hex:10}-{base36:5}
"""
PROSE = """
The password was too short, and the token had expired. His password is now longer than mine. The secret: butter. A token of my
love. The key is under the mat; the code is on the door. Password reset is not possible today. Keep your password secret!
Your password must contain a number. The password is stored as a hash. In {d:4}, 1 of {n:1}{d:2} users forgot their password.
Passwords: a history. The secret is out. Our secret is simple: patience. Access token lifetime: {d:2} minutes. PIN required.
"""
DEUTSCH = """
Das Passwort ist zu kurz. Ihr Passwort wurde geändert. Das Kennwort lautet anders als gedacht. Passwort vergessen?
Am {day}.{month}.2026 um {d:1}:30 Uhr, Zimmer {d:3}, 2. OG. Artikel {d:6}, Kundennummer {d:7}, PLZ 10115 Berlin, 12.345,67 €.
"""
FRANCAIS = """
Le mot de passe est trop court. Votre mot de passe a été modifié. Mot de passe oublié ? Le {day}/{month}/2026 à {d:1} h 30,
bureau {d:3}. Le code postal est 75011, le prix 1 {d:3},{d:2} €, la commande {d:8}.
"""
NUMBERS = """
{d:4} {d:4} {d:4}, {d:3}-{d:2}, {d:5}-{d:4}, 20{d:2}-{month}-{day}, {n:1}.{d:3}.{d:3}, 0.{d:10}, {n:1}{d:9}, {n:1}{d:12}, {n:1}e{d:2},
pages 123-145, lines 10-20, 3:45, 1/3, 1:1000, v{n:1}.{d:1}.{d:1}, {n:1}.{d:1}.{d:1}.{d:1}, $1,000,000, 192.168.0.0/16, 255.255.255.0, ::1, fe80::1
"""
RUST = """
pub struct Login { name: String, password: Secret<String>, token: Option<Token>, secret: [u8; 32] }
impl Login {
    pub fn new(password: impl Into<String>, token: &str) -> Result<Self> {
        let secret = Secret::new(password.into());
        let api_key = std::env::var("API_KEY").context("API_KEY is not set")?;
        let secret = secret.iter().map(|byte| byte ^ 0x{hex:2}).collect::<Vec<u8>>();
        let token = Token::<Signed>::decode(&token[..{n:1}{d:1}])?;
        let key = Key::from_slice(&hash[..{n:1}]);
        let token = parse_token(token).map_err(|error| Error::Token(error))?;
        assert_eq!(token.len(), {d:2});
        Ok(Self { name, password: secret, token: Some(token), api_key })
    }
}
"""
BASH = """
if [ -z "${TOKEN:-}" ]; then echo "TOKEN is not set" >&2; exit 1; fi
token=$(curl -s "$URL/token" | jq -r .token)
read -r -s -p "Enter the password: " PASSWORD; echo
PASSWORD=${PASSWORD:-$(cat "$HOME/.password")}
export PGPASSWORD="$PASSWORD"; psql -U "$USER" -h "$HOST" -c 'select 1'
docker run -e "SECRET=$SECRET" -e TOKEN -p {n:1}000:80 --env-file .env app:{hex:7}
openssl rand -hex 32 > key.txt; chmod 600 key.txt
mysql --user=root --password="$PASSWORD" -e 'show tables'
curl -u "$USER:$PASSWORD" -H "X-Token: $TOKEN" "$URL"
"""
WEB_LOG = """
172.16.{n:1}.{d:2} - alice [03/Feb/2026:11:{d:2}:{d:2} +0100] "GET /assets/main-{hex:8}.css?v={hex:10} HTTP/2.0" 304 0 "https://example.com/" "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36"
10.1.{n:1}.{d:2} - - [03/Feb/2026:11:{d:2}:{d:2} +0100] "GET /login?next=%2Fhome HTTP/1.1" 302 {d:3} "-" "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 Version/17.5 Mobile/15E148 Safari/604.1"
192.168.0.{n:1} - - [03/Feb/2026:11:{d:2}:{d:2} +0100] "POST /user/login HTTP/1.1" 200 {d:3} "-" "okhttp/4.12.0"
10.2.{n:1}.{d:2} - - [03/Feb/2026:11:{d:2}:{d:2} +0100] "GET /robots.txt HTTP/1.1" 404 {d:3} "-" "Googlebot/2.1 (+http://www.google.com/bot.html)"
"""
STRUCTURED_LOG = """
{"time":"2026-02-03T11:{d:2}:{d:2}.{d:6}Z","severity":"INFO","message":"token refreshed","traceId":"{hex:32}","spanId":"{hex:16}","sessionId":"{uuid}","durationMs":{d:2}.{d:2}}
time=2026-02-03T11:{d:2}:{d:2}Z level=warn msg="secret not found" key=db/main user_id={d:6} request_id={uuid} code=E{d:4} session={hex:12}
{"event":"login","session":"{uuid}","auth":"password","mfa":true,"token_type":"bearer","expires_in":3600}
"""
HASHES = """
{hex:64}  app.tar.gz
{hex:32} *data.csv
sha256:{hex:64}
Session: {uuid}; key: {uuid}
<img src="https://cdn.example.com/{d:9}_{hex:32}_o.jpg">  backup-2026-{month}-{day}-{hex:40}.tar
traceparent: 00-{hex:32}-{hex:16}-01
01HV{n:1}{d:1}K{d:1}XZ{n:1}M{d:1}QATVB{d:2}WCN{d:1}PE
"""
LATEX = """
\\begin{equation}\\label{eq:key} e^{i\\pi} + 1 = 0, \\quad \\sqrt{2} \\approx 1.41421356237309504880168872420969807856967 \\end{equation}
$\\sum_{n=1}^{\\infty} \\frac{1}{n^2} = \\frac{\\pi^2}{6} \\approx 1.6449340668482264364724151666460$, $n! = {n:1}{d:20}$, $p = {n:1}{d:17}$ is prime,
\\[ A = \\begin{pmatrix} {d:3} & {d:3} \\\\ {d:3} & {d:3} \\end{pmatrix}, \\quad x_{{n:1}} = {d:2}.{d:12} \\pm 10^{-{n:1}} \\]
"""
DIGITS = """
{n:1}{d:15}, {n:1}{d:12}, {n:1}{d:13}, {n:1}{d:14}, {n:1}{d:18}: {n:1}{d:9} of {n:1}{d:8} in {n:1}{d:7}; {d:3} {d:3} {d:4}; 555 {d:4}; {d:4} {d:6}
"""
TEXTS: dict[str, str] = {
    name.lower(): value for name, value in list(globals().items()) if name.isupper() and name != "TEXTS"
}
