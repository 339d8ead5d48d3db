"""Passwords as people and programs write them, by class."""

from tests.safety.draw import Form, forms

DATABASE_URL = forms(
    """
mysql://{user}:«{urlpassword}»@db.example.com:3306/{word}
mongodb+srv://{user}:«{urlpassword}»@cluster0.ab1cd.mongodb.net/{word}?retryWrites=true
redis://:«{urlpassword}»@cache.example.com:6379/0
amqps://{user}:«{urlpassword}»@mq.example.com/{word}
jdbc:mysql://db.example.com/{word}?user={user}&password=«{urlpassword}»&useSSL=true
jdbc:oracle:thin:{user}/«{alnum:12}»@//db.example.com:1521/{word}
Server=tcp:db.example.com,1433;Initial Catalog={word};User ID={user};Password=«{password}»;Encrypt=True
Driver={ODBC Driver 17 for SQL Server};Server=db;UID=sa;PWD=«{password}»;
clickhouse://{user}:«{urlpassword}»@ch.example.com:8443/{word}
snowflake://{user}:«{urlpassword}»@xy12345.eu-west-1/{word}
mssql+pyodbc://sa:«{urlpassword}»@db.example.com/{word}?driver=ODBC+Driver+17
host=db.example.com user={user} password=«{alnum:14}» dbname={word} sslmode=require
https://{user}:«{urlpassword}»@search.example.com:9243
sftp://{user}:«{urlpassword}»@files.example.com/in
neo4j+s://neo4j:«{b64url:43}»@{hex:8}.databases.neo4j.io
create_engine("cockroachdb://{user}:«{urlpassword}»@crdb:26257/{word}")
"""
)
PROSE: list[Form] = [
    *forms(
        """
my password is «{password}»
The wifi password is «{password}», and the network is called {word}.
Log in with the user {user} and the password «{password}».
Password for the staging server: «{password}»
you can use «{password}» as the password
His passphrase was “{words:2}”; mine is “«{words:4}»”.
Das Passwort lautet «{password}», bitte nicht weitergeben.
Mein Kennwort ist «{password}»
le mot de passe est «{password}»
Mot de passe : «{password}»
la contraseña es «{password}»
Contraseña: «{password}»
la password del router è «{password}»
wachtwoord: «{password}»
login: {user} / «{password}»
"""
    ),
    "user: {user}\npass: «{password}»",
    *forms(
        """
creds are {user}:«{password}»
the PIN of my card is «{d:4}»
door code «{d:6}#»
Your one-time code is «{d:6}». It expires in ten minutes.
I changed the password to «{password}» yesterday.
pw: «{password}»
"""
    ),
]
CONFIG: list[Form] = [
    "[database]\nuser = {user}\npassword = «{password}»\n",
    *forms(
        """
spring.datasource.password=«{password}»
<property name="password" value="«{password}»"/>
<server><id>central</id><username>{user}</username><password>«{password}»</password></server>
define('DB_PASSWORD', '«{password}»');
"ConnectionStrings": {"Default": "Server=.;Database=x;User Id=sa;Password=«{password}»;"}
machine api.example.com login {user} password «{alnum:20}»
db.example.com:5432:{word}:{user}:«{alnum:16}»
"""
    ),
    'variable "db_password" {\n  default = "«{password}»"\n}',
    "apiVersion: v1\nkind: Secret\ndata:\n  password: «{b64:22}==»",
    "services:\n  db:\n    environment:\n      - MYSQL_ROOT_PASSWORD=«{password}»",
    *forms(
        """
$db_pass = '«{password}»';
ansible_become_pass: '«{password}»'
requirepass «{alnum:24}»
ENV ADMIN_PASSWORD="«{password}»"
{"user": "{user}", "passwd": "«{password}»"}
const dbPassword = "«{password}»";
"""
    ),
    '  "smtpPassword" : "«{password}»",',
    "masterUserPassword: '«{password}»'",
    "network={\n  ssid=\"{word}\"\n  psk=\"«{password}»\"\n}",
    *forms(
        """
ALTER USER {user} WITH PASSWORD '«{password}»';
CREATE USER '{user}'@'%' IDENTIFIED BY '«{password}»';
String secretKey = "«{alnum:32}»";
enable secret 5 «$1${alnum:4}${alnum:22}»
{user}:«$6${alnum:16}${alnum:86}»:19000:0:99999:7:::
"""
    ),
]  # fmt: skip
COMMAND_LINE = forms(
    """
mysql -u root -p«{alnum:12}» {word}
PGPASSWORD=«{password}» psql -h db -U {user}
curl -u {user}:«{password}» https://api.example.com/
wget --user={user} --password='«{password}»' https://example.com/f
sshpass -p '«{password}»' ssh {user}@10.0.0.3
redis-cli -h cache -a «{alnum:20}» ping
mongosh mongodb://db --username {user} --password «{alnum:16}»
docker login -u {user} -p «{alnum:20}» registry.example.com
ldapsearch -D cn=admin,dc=x -w «{alnum:14}» -b dc=x
openssl rsa -in key.pem -passin pass:«{alnum:14}»
net user {user} «{password}» /add
htpasswd -b .htpasswd {user} «{alnum:12}»
smbclient //files/share -U {user}%«{alnum:12}»
kubectl create secret generic db --from-literal=password='«{password}»'
helm upgrade db bitnami/postgresql --set auth.password=«{alnum:16}»
7z x -p«{alnum:14}» archive.7z
gpg --batch --passphrase '«{password}»' -d f.gpg
export API_TOKEN=«{alnum:24}»
setx SECRET_KEY "«{alnum:30}»"
heroku config:set SECRET_TOKEN=«{hex:32}»
echo «{alnum:16}» | sudo -S apt update
aws configure set aws_secret_access_key «{b64:40}»
sqlcmd -S db -U sa -P '«{password}»' -Q 'select 1'
./deploy.sh --api-key=«{hex:32}» --region eu
"""
)
HEADER = forms(
    """
Authorization: Basic «{basic}»
Proxy-Authorization: Basic «{basic}»
authorization: Bearer «{b64url:64}»
X-Api-Key: «{alnum:40}»
x-goog-api-key: «{b64url:39}»
Ocp-Apim-Subscription-Key: «{hex:32}»
PRIVATE-TOKEN: «{alnum:20}»
X-Vault-Token: «{b64url:26}»
X-Amz-Security-Token: «{b64:200}»
x-functions-key: «{b64url:54}==»
DD-API-KEY: «{hex:32}»
CF-Access-Client-Secret: «{hex:64}»
X-Shopify-Access-Token: «{hex:32}»
{"headers": {"X-RapidAPI-Key": "«{hex:24}msh{hex:15}p{hex:6}jsn{hex:12}»"}}
headers={"Authorization": "Bearer «{alnum:40}»"}
-H 'X-Auth-Key: «{hex:37}»'
Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/eu/s3/aws4_request, Signature=«{hex:64}»
Authorization: ApiKey «{b64:58}==»
apikey: «{alnum:32}»
X-CSRF-Token: «{b64:86}==»
Authorization: GenieKey «{uuid}»
"""
)
ENVIRONMENT = forms(
    """
DJANGO_SECRET_KEY='«{base36:40}!x%»'
JWT_SECRET=«{alnum:32}»
NEXTAUTH_SECRET=«{b64:43}=»
SMTP_PASS=«{password}»
SESSION_SECRET=«{word}-{word}-{word}»
ENCRYPTION_KEY=«{hex:64}»
APP_KEY=base64:«{b64:43}=»
RAILS_MASTER_KEY=«{hex:32}»
SECRET_KEY_BASE=«{hex:128}»
DATABASE_PASSWORD=«{password}»
S3_SECRET=«{b64:40}»
PUSHER_APP_SECRET=«{hex:20}»
export GRAFANA_ADMIN_PASSWORD="«{password}»"
SALESFORCE_SECURITY_TOKEN=«{alnum:24}»
OAUTH_CLIENT_SECRET=«{b64url:40}»
REDIS_PASSWORD: «{password}»
WEBHOOK_SIGNING_SECRET=«{alnum:32}»
set ADMIN_PWD=«{password}»
$env:API_KEY = '«{alnum:32}»'
MINIO_ROOT_PASSWORD=«{alnum:16}»
SENTRY_AUTH_TOKEN=«{hex:64}»
COOKIE_SECRET=«{b64url:32}»
AUTH_SALT='«{alnum:32}»'
TOTP_SEED=«{base32:16}»
"""
)
