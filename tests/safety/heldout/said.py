"""Passwords said in thirty languages: the list that is held out, written before there were rules for them."""

from tests.safety.draw import Form, forms

SAID_ENGLISH: list[Form] = [
    "ok so the password you need is «{secret}»",
    "passwd's «{secret}» btw",
    "You can login using {user} and «{secret}» until Friday",
    "Server: {host}\nUser: {user}\nPassword\n«{secret}»",
    *forms(
        """
We reset your password. Your new one is «{secret}»
the guest wifi has the password «{secret}»
My bank password used to be «{secret}».
username is {user} and the password is «{secret}»
pwd => «{secret}»
Passcode «{secret}» opens the door
I always take «{secret}» for my password, is that safe?
Remember: pass phrase = “«{secret}»”
credentials {user}:«{secret}»
the root pw is still `«{secret}»`
my old password («{secret}») does not work any more
connect as {user} using password «{secret}» then restart
PASSWORD IS «{secret}»
the psw to unlock the zip: «{secret}»
for the record, {user}'s password was «{secret}»
its pin code is «{d:6}»
"""
    ),
]
SAID_GERMAN = forms(
    """
also das Passwort, das du brauchst, ist «{secret}»
mein Passwort war bisher «{secret}».
Logge dich mit {user} und «{secret}» ein
Benutzername ist {user} und das Passwort ist «{secret}»
Das neue Passwort: „«{secret}»“
Kennwort = «{secret}»
das Gäste-WLAN hat das Passwort «{secret}»
ich nehme immer «{secret}» als Kennwort
mein altes Passwort («{secret}») geht nicht mehr
WLAN-Passwort «{secret}»
Dein Zugangscode lautet «{secret}»
die Geheimzahl meiner Karte lautet «{d:4}»
PASSWORT: «{secret}»
"""
)
SAID_FRENCH = forms(
    """
donc le mot de passe dont tu as besoin est «{secret}»
mon mot de passe était «{secret}».
Connectez-vous avec {user} et «{secret}»
le nom d'utilisateur est {user} et le mot de passe est «{secret}»
Nouveau mot de passe : “«{secret}»”
MDP = «{secret}»
le wifi a pour mot de passe «{secret}»
je prends toujours «{secret}» comme mot de passe
mon ancien mot de passe («{secret}») ne marche plus
mot de passe wifi «{secret}»
Votre code d'accès est «{secret}»
mon code PIN c'est «{d:4}»
"""
)
SAID_SPANISH = forms(
    """
entonces la contraseña que necesitas es «{secret}»
mi contraseña era «{secret}».
Inicia sesión con {user} y «{secret}»
el usuario es {user} y la contraseña es «{secret}»
Nueva contraseña: “«{secret}»”
CONTRASEÑA = «{secret}»
el wifi tiene la contraseña «{secret}»
siempre uso «{secret}» como contraseña
mi contraseña antigua («{secret}») ya no funciona
contrasena wifi «{secret}»
Su código de acceso es «{secret}»
mi pin es el «{d:4}»
la clave es «{secret}», no la compartas
"""
)
SAID_ITALIAN = forms(
    """
allora la password che ti serve è «{secret}»
la mia password era «{secret}».
Entra con {user} e «{secret}»
il nome utente è {user} e la password è «{secret}»
Nuova password: “«{secret}»”
PASSWORD = «{secret}»
il wifi ha come password «{secret}»
uso sempre «{secret}» come password
la mia vecchia password («{secret}») non funziona più
password wifi «{secret}»
Il tuo codice di accesso è «{secret}»
il mio pin è «{d:4}»
la parola chiave è «{secret}»
"""
)
SAID_WEST = forms(
    """
a senha que você precisa é «{secret}»
usuário {user} e senha «{secret}»
mudei a senha para «{secret}»
a minha palavra-passe era «{secret}».
het wachtwoord dat je nodig hebt is «{secret}»
gebruiker {user} en wachtwoord «{secret}»
ik heb het wachtwoord veranderd in «{secret}»
mijn oude wachtwoord («{secret}») werkt niet meer
lösenordet du behöver är «{secret}»
användare {user} och lösenord «{secret}»
jag har ändrat lösenordet till «{secret}»
lösenordet till wifi är «{secret}»
adgangskoden, du skal bruge, er «{secret}»
bruger {user} og adgangskode «{secret}»
mit kodeord er «{secret}»
passordet du trenger er «{secret}»
bruker {user} og passord «{secret}»
jeg har endret passordet til «{secret}»
tarvitsemasi salasana on «{secret}»
käyttäjä {user} ja salasana «{secret}»
wifin salasana on «{secret}»
SALASANA = «{secret}»
"""
)
SAID_MIDDLE = forms(
    """
hasło, którego potrzebujesz, to «{secret}»
użytkownik {user} i hasło «{secret}»
zmieniłem hasło na «{secret}»
hasłem jest «{secret}»
heslo, které potřebuješ, je «{secret}»
uživatel {user} a heslo «{secret}»
změnil jsem heslo na «{secret}»
heslo na wifi je «{secret}»
a jelszó, amire szükséged van: «{secret}»
felhasználó {user}, jelszó «{secret}»
a wifi jelszava «{secret}»
a jelszavam az, hogy «{secret}»
parola de care ai nevoie este «{secret}»
utilizator {user} și parola «{secret}»
am schimbat parola în «{secret}»
parola veche era «{secret}»
lozinka koja ti treba je «{secret}»
korisnik {user} i lozinka «{secret}»
promijenio sam lozinku u «{secret}»
wifi lozinka: «{secret}»
ihtiyacın olan şifre «{secret}»
kullanıcı {user} ve parola «{secret}»
wifi şifresi «{secret}»
şifremi «{secret}» yaptım
"""
)
SAID_GREEK_CYRILLIC = forms(
    """
тебе нужен пароль «{secret}»
логин {user} и пароль «{secret}»
я поменял пароль на «{secret}»
пароль от вайфая «{secret}»
пароль был такой: «{secret}»
потрібний тобі пароль — «{secret}»
логін {user} і пароль «{secret}»
я змінив пароль на «{secret}»
пароль вай-фай це «{secret}»
ο κωδικός που χρειάζεσαι είναι «{secret}»
χρήστης {user} και κωδικός «{secret}»
άλλαξα τον κωδικό σε «{secret}»
το συνθηματικό είναι «{secret}»
потребител {user} и парола «{secret}»
смених паролата на «{secret}»
"""
)
SAID_EAST: list[Form] = [
    *forms(
        """
كلمة المرور التي تحتاجها هي «{secret}»
المستخدم {user} وكلمة المرور «{secret}»
غيرت كلمة السر إلى «{secret}»
הסיסמה שאתה צריך היא «{secret}»
משתמש {user} וסיסמה «{secret}»
שיניתי את הסיסמה ל-«{secret}»
رمز عبوری که لازم داری «{secret}» است
کاربر {user} و رمز عبور «{secret}»
"""
    ),
    "رمز وای‌فای: «{secret}»",
    *forms(
        """
आपको जो पासवर्ड चाहिए वह «{secret}» है
यूज़र {user} और पासवर्ड «{secret}»
必要なパスワードは«{secret}»です
ユーザー名は{user}、パスワードは«{secret}»
パスワードを「«{secret}»」に変更しました
暗証番号は«{d:4}»です
你需要的密码是 «{secret}»
用户名{user}，密码«{secret}»
我把密码改成了«{secret}»
口令：«{secret}»
필요한 비밀번호는 «{secret}»이야
아이디 {user} 비밀번호 «{secret}»
비번은 «{secret}»
mật khẩu bạn cần là «{secret}»
người dùng {user} và mật khẩu «{secret}»
tôi đã đổi mật khẩu thành «{secret}»
sandi yang kamu perlukan adalah «{secret}»
pengguna {user} dan kata sandi «{secret}»
sandi wifi «{secret}»
รหัสผ่านที่คุณต้องการคือ «{secret}»
ผู้ใช้ {user} รหัสผ่าน «{secret}»
เปลี่ยนรหัสผ่านเป็น «{secret}» แล้ว
"""
    ),
]
