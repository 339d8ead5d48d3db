"""Passwords said in thirty languages, the list by which the detector is built."""

from tests.safety.draw import Form, forms

SAID_ENGLISH: list[Form] = [
    *forms(
        """
my password is «{password}»
the pw's «{password}», don't tell {user}
Hi, log in as {user} with «{password}» please
password «{password}»
I changed the wifi password to «{password}» yesterday.
Use «{password}» as the password.
user {user}, pass «{password}»
The passphrase for the backup: «{password}»
it asks for a password, just type «{password}»
my pasword is **«{password}»**
sign in with {user} / «{password}»
The PIN of my card is «{d:4}».
“«{password}»” is my password for the router
can you set the admin password to «{password}» for me?
Passwort... sorry, password — «{password}»
As discussed, the login password will be «{chosen}».
the router's passphrase was changed to «{chosen}» on Monday
Tell her that the passcode is «{chosen}»!
account {user}, password is «{chosen}»
the vault password (currently «{chosen}») expires soon
"""
    ),
    "password:\n«{chosen}»",
    *forms(
        """
Password → «{chosen}»
I set «{chosen}» as my new password
sign in using {user} and «{password}» from home
{user}: my pw is «{chosen}» if you need it
her password was '«{chosen}»' all along
"""
    ),
]
SAID_GERMAN = forms(
    """
mein Passwort ist «{password}»
Das Kennwort lautet: «{password}»
Das PW fürs WLAN ist «{password}»
melde dich als {user} mit «{password}» an
Passwort «{password}»
Ich habe das Passwort auf «{password}» geändert.
Nimm «{password}» als Passwort.
Benutzer {user}, Kennwort «{password}»
gib beim Login einfach «{password}» ein
Die PIN ist «{d:4}».
Zugangsdaten: {user} / «{password}»
das Losungswort für den Server heißt „«{password}»“
Dein neues Passwort heißt «{chosen}».
Ich hab als Kennwort «{chosen}» genommen
Das Passwort (aktuell «{chosen}») läuft bald ab
Unser Kennwort war immer «{chosen}».
Verbinde dich als {user} mit «{password}» und starte neu
Nutzer {user}, das Passwort ist «{chosen}»
Passwort fürs Postfach = «{chosen}»
"""
)
SAID_FRENCH = forms(
    """
mon mot de passe est «{password}»
Le mot de passe : «{password}»
le mdp c'est «{password}»
connecte-toi en tant que {user} avec «{password}»
mot de passe «{password}»
J'ai changé mon mot de passe en «{password}» hier.
Utilise «{password}» comme mot de passe.
utilisateur {user}, mdp «{password}»
Le code secret de la carte est «{d:4}».
identifiants : {user} / «{password}»
la phrase secrète est “«{password}»”
Ton nouveau mot de passe sera «{chosen}».
j'ai mis «{chosen}» comme mot de passe
Le mot de passe (actuellement «{chosen}») expire bientôt
Notre mot de passe, c'est «{chosen}»
Identifie-toi avec {user} et «{password}» puis redémarre
compte {user}, le mot de passe est «{chosen}»
le serveur a le mot de passe «{password}»
mdp du wifi = «{chosen}»
mot de passe vpn «{password}»
mon PIN c'est «{d:4}», garde-le
"""
)
SAID_SPANISH = forms(
    """
mi contraseña es «{password}»
La contraseña: «{password}»
la clave del wifi es «{password}»
entra como {user} con «{password}»
contraseña «{password}»
He cambiado la contraseña a «{password}» ayer.
Usa «{password}» como contraseña.
usuario {user}, contraseña «{password}»
El PIN de la tarjeta es «{d:4}».
credenciales: {user} / «{password}»
mi password es «{password}»
Tu nueva contraseña será «{chosen}».
puse «{chosen}» como contraseña
La contraseña (ahora «{chosen}») caduca pronto
Nuestra contraseña siempre fue «{chosen}»
Accede con {user} y «{password}» y reinicia
cuenta {user}, la contraseña es «{chosen}»
el servidor tiene la clave «{password}»
"""
)
SAID_ITALIAN = forms(
    """
la mia password è «{password}»
La password: «{password}»
la parola d'ordine è «{password}»
accedi come {user} con «{password}»
password «{password}»
Ho cambiato la password in «{password}» ieri.
Usa «{password}» come password.
utente {user}, password «{password}»
Il PIN della carta è «{d:4}».
credenziali: {user} / «{password}»
la chiave del wifi è «{password}»
La tua nuova password sarà «{chosen}».
ho messo «{chosen}» come password
La password (adesso «{chosen}») scade presto
La nostra password era sempre «{chosen}»
Collegati con {user} e «{password}» e riavvia
conto {user}, la password è «{chosen}»
il server ha la password «{password}»
"""
)
SAID_WEST = forms(
    """
minha senha é «{password}»
A senha do servidor: «{password}»
a palavra-passe é «{password}»
senha «{password}»
mijn wachtwoord is «{password}»
Het wachtwoord van de server: «{password}»
wachtwoord «{password}»
log in als {user} met «{password}»
mitt lösenord är «{password}»
Lösenordet: «{password}»
lösenord «{password}»
min adgangskode er «{password}»
Adgangskoden til serveren: «{password}»
kodeord «{password}»
passordet mitt er «{password}»
Passord: «{password}»
passord «{password}»
salasanani on «{password}»
Salasana: «{password}»
salasana «{password}»
a nova senha será «{chosen}»
A senha (agora «{chosen}») expira logo
usei «{chosen}» como senha
het nieuwe wachtwoord wordt «{chosen}»
Ik heb «{chosen}» als wachtwoord gekozen
nya lösenordet blir «{chosen}»
jag tog «{chosen}» som lösenord
den nye adgangskode bliver «{chosen}»
jeg har «{chosen}» som passord
uusi salasana on «{chosen}»
konto {user}, salasana «{password}»
senha vpn «{chosen}»
lozinka router «{password}»
"""
)
SAID_MIDDLE = forms(
    """
moje hasło to «{password}»
Hasło: «{password}»
hasło «{password}»
moje heslo je «{password}»
Heslo k serveru: «{password}»
heslo «{password}»
a jelszavam «{password}»
A jelszó: «{password}»
jelszó «{password}»
parola mea este «{password}»
Parola serverului: «{password}»
parola «{password}»
moja lozinka je «{password}»
Lozinka: «{password}»
lozinka «{password}»
şifrem «{password}»
Parola: «{password}»
şifre «{password}»
parolam «{password}», kimseye söyleme
nowe hasło to «{chosen}»
hasło do serwera brzmi «{chosen}»
nové heslo bude «{chosen}»
jako heslo mám «{chosen}»
az új jelszó ez lesz: «{chosen}»
noua parolă va fi «{chosen}»
nova lozinka će biti «{chosen}»
yeni şifre: «{chosen}»
yeni parola «{password}» oldu
"""
)
SAID_GREEK_CYRILLIC = forms(
    """
мой пароль «{password}»
Пароль от сервера: «{password}»
пароль — «{password}»
зайди как {user} с паролем «{password}»
мій пароль «{password}»
Пароль до сервера: «{password}»
пароль такий: «{password}»
ο κωδικός μου είναι «{password}»
Κωδικός πρόσβασης: «{password}»
κωδικός «{password}»
паролата ми е «{password}»
Парола: «{password}»
новый пароль будет «{chosen}»
поставил пароль «{password}»
новий пароль буде «{chosen}»
ο νέος κωδικός θα είναι «{chosen}»
новата парола е «{chosen}»
"""
)
SAID_EAST = forms(
    """
كلمة المرور هي «{password}»
كلمة السر: «{password}»
كلمة المرور الخاصة بي «{password}»
הסיסמה שלי היא «{password}»
סיסמה: «{password}»
הסיסמא «{password}»
رمز عبور من «{password}» است
گذرواژه: «{password}»
मेरा पासवर्ड «{password}» है
पासवर्ड: «{password}»
パスワードは「«{password}»」です
パスワード：«{password}»
パスワードは«{password}»です。
我的密码是«{password}»
密码：«{password}»
密碼是 «{password}»，不要告訴別人
비밀번호는 «{password}»입니다
비밀번호: «{password}»
mật khẩu của tôi là «{password}»
Mật khẩu: «{password}»
kata sandi saya adalah «{password}»
Kata sandi: «{password}»
รหัสผ่านของฉันคือ «{password}»
รหัสผ่าน: «{password}»
كلمة المرور الجديدة ستكون «{chosen}»
הסיסמה החדשה: «{chosen}»
رمز عبور جدید «{chosen}» است
नया पासवर्ड «{chosen}» होगा
新しいパスワードは«{chosen}»になります
新密码是«{chosen}»。
새 비밀번호는 «{chosen}» 입니다
mật khẩu mới sẽ là «{chosen}»
kata sandi baru adalah «{chosen}»
รหัสผ่านใหม่คือ «{chosen}»
"""
)
