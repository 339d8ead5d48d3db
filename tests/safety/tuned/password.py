"""Passwords on which the detector was tuned."""

from tests.safety.draw import Form, forms

DATABASE_URL = forms(
    """
postgresql://{user}:«{urlpassword}»@db.example.com/{word}
postgres://{user}:«{urlpassword}»@localhost:5432/{word}?sslmode=disable
rediss://default:«{alnum:24}»@cache.example.com:6380
ftp://{user}:«{urlpassword}»@ftp.example.com
jdbc:postgresql://db/{word}?user={user}&password=«{urlpassword}»
Data Source=db;User ID={user};Password=«{password}»;
dbname={word} user={user} password='«{password}»'
"""
)
PROSE = forms(
    """
The password is «{password}».
My password for {word} is «{password}», don't tell anybody!
password: «{password}»
Please use the password «{password}» to log in.
Username: {user}, password: «{password}»
the passcode is «{d:6}»
your verification code is «{d:6}»
my pin is «{d:4}»
Mein Passwort ist «{password}».
Passwort: «{password}»
mon mot de passe est «{password}»
mi contraseña es «{password}»
la mia password è «{password}»
set the password to «{password}»
log in as {user} with password «{password}»
credentials: {user} / «{password}»
pass: «{password}»
pwd «{password}»
The secret code is «{alnum:10}»
so the password's «{password}»
you need the password, which is «{password}»
password for the printer is «{password}»
login {user}, password «{password}»
ID: {user} PW: «{password}»
The old password «{password}» still works.
Ich habe das Passwort auf «{password}» geändert.
Le code d'accès est «{d:6}».
Der Türcode ist «{d:5}».
mi clave es «{password}»
Try admin:«{password}» first.
It only accepts my passphrase “«{words:4}»”.
"""
)
CONFIG: list[Form] = [
    "password: «{password}»\n",
    "password = «{password}»\n",
    *forms(
        """
db_password = "«{password}»"
{"password": "«{password}»"}
<password>«{password}»</password>
<add key="ApiSecret" value="«{alnum:32}»"/>
"""
    ),
    "machine github.com\nlogin {user}\npassword «{alnum:20}»",
    "[client]\nuser={user}\npassword=«{password}»",
    "environment:\n  POSTGRES_PASSWORD: «{password}»",
    *forms(
        """
define( 'AUTH_KEY', '«{alnum:64}»' );
ENV DB_PASSWORD=«{password}»
password := "«{password}»"
let apiSecret = '«{alnum:32}»';
IDENTIFIED BY '«{password}»'
ALTER ROLE {user} PASSWORD '«{password}»'
masterauth «{alnum:24}»
{user}:«$2y$10${alnum:53}»
//npm.pkg.github.com/:_authToken=«ghp_{alnum:36}»
config.adminPass = "«{password}»"
'password' => '«{password}»',
"""
    ),
]
COMMAND_LINE = forms(
    """
mysql -u{user} -p'«{password}»' {word}
export PASSWORD=«{password}»
curl --user {user}:«{password}» https://x.example
mysqldump --password=«{password}» {word}
sshpass -p «{alnum:12}» ssh x
docker login --username {user} --password «{alnum:20}» x.example
curl -H 'X-Token: «{alnum:32}»' x.example
tool --token «{alnum:30}» run
tool --secret='«{alnum:30}»'
echo '«{password}»' | docker login -u {user} --password-stdin
openssl enc -aes-256-cbc -pass pass:«{alnum:14}» -in f
zip -P «{alnum:12}» a.zip f
mysqladmin -u root password '«{password}»'
rclone config create x sftp user {user} pass «{alnum:16}»
ssh-keygen -t ed25519 -N '«{password}»' -f k
az login -u {user} -p «{alnum:16}»
vault login «s.{alnum:24}»
unzip -P «{alnum:12}» a.zip
http -a {user}:«{alnum:14}» GET x.example
nmcli dev wifi connect {word} password «{alnum:12}»
echo '{user}:«{alnum:14}»' | chpasswd
psql 'host=db user={user} password=«{alnum:14}»'
kubectl create secret generic x --from-literal=token=«{alnum:24}»
"""
)
HEADER: list[Form] = [
    *forms(
        """
Authorization: Bearer «{alnum:40}»
Authorization: Basic «{basic}»
Authorization: Token «{hex:40}»
X-API-Key: «{hex:32}»
x-api-key: «{alnum:32}»
X-Access-Token: «{alnum:32}»
Api-Token: «{alnum:32}»
"Authorization": "Bearer «{alnum:40}»"
-H 'Authorization: «{alnum:40}»'
x-amz-security-token: «{b64:200}»
"""
    ),
    "X-Auth-Email: x\nX-Auth-Key: «{hex:37}»",
    "Authorization: Digest username=\"{user}\", response=\"«{hex:32}»\"",
]  # fmt: skip
ENVIRONMENT = forms(
    """
SECRET_KEY=«{alnum:50}»
API_KEY=«{alnum:32}»
DB_PASS=«{password}»
export MYSQL_PWD=«{password}»
AUTH_TOKEN='«{hex:40}»'
MAILER_PASSWORD=«{password}»
SIGNING_KEY=«{b64:43}=»
APP_SECRET=«{hex:32}»
PASSWORD_SALT=«{alnum:16}»
CLIENT_SECRET: «{b64url:32}»
"""
)
