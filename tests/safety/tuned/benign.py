"""Lines in thirty languages and in many formats in which nothing is secret, the list by which the detector is built."""

SAID = """
Your password is too short.
Is the password wrong, or is it the user name?
I forgot my password and cannot log in.
The password is case sensitive and must have a digit.
Log in as an administrator with the new account.
He said that the key is in the drawer.
The secret is to knead the dough well.
Please enter your password to continue.
Das Passwort ist zu kurz.
Ich habe mein Passwort vergessen.
Melde dich als Administrator mit dem neuen Konto an.
Das Passwort muss geändert werden.
Le mot de passe est incorrect.
J'ai oublié mon mot de passe.
Connectez-vous en tant qu'administrateur avec le nouveau compte.
La contraseña es incorrecta.
He olvidado mi contraseña.
La clave del éxito es la paciencia.
La password è errata.
Ho dimenticato la mia password.
A senha está incorreta.
Het wachtwoord is onjuist.
Lösenordet är fel.
Adgangskoden er forkert.
Passordet er feil.
Salasana on väärä.
Hasło jest nieprawidłowe.
Heslo je nesprávné.
A jelszó helytelen.
Parola este greșită.
Lozinka nije točna.
Şifre yanlış.
Пароль неверный, попробуйте ещё раз.
Пароль невірний.
Ο κωδικός είναι λάθος.
Паролата е грешна.
كلمة المرور غير صحيحة.
הסיסמה שגויה.
رمز عبور اشتباه است.
पासवर्ड गलत है।
パスワードが間違っています。
パスワードを忘れました。
密码错误，请重试。
비밀번호가 틀렸습니다.
Mật khẩu không đúng.
Kata sandi salah.
รหัสผ่านไม่ถูกต้อง
"""
FORMATS = """
{"messages": "{\\"role\\": \\"user\\", \\"content\\": \\"What is {n:1}{d:2} + {d:2}?\\"}"}
{"password": null, "token_count": {d:3}, "secret": false}
GET /search?q=hello%20world&page={d:1} HTTP/1.1 200 {d:4}
&lt;div class=&quot;{word}&quot;&gt;{word} &amp; {word}&lt;/div&gt;
ｐｙｔｈｏｎ　と　ｊａｖａ　の違い
def login(user, password): return check(user, password)
login(username, password)
login("{user}", os.environ["PASSWORD"])
open("{word}.txt", "w")
connect("{host}", "{word}")
replace("{word}", "{word}")
page.click("#login")
1.234.567.890.123.456 Euro
Version 4.{d:4}.{d:4}.{d:4}
{d:4}/{d:4}/{d:4}
12:30:45:{d:2}
commit {hex:40}
sha256:{hex:64}
{d:16}
{d:4} {d:4} {d:4} {d:4}
meet us at the corner, dot the i and cross the t
The at sign (@) and the dot (.) are signs.
We are at work dot every day.
2026-03-{day} 06:25:01 INFO user {user} logged in from cache
ratio 0.{d:6}, loss {n:1}.{d:4}, step {d:6}
[{d:2}, {d:2}, {d:2}, {d:2}]
-p {d:4}:{d:4} --rm {word}
WIFI: connected, S: {d:2} dBm, P: {d:1}
int password_length = {n:1}{d:1};
for key, value in config.items():
"""
TEXTS = {
    **{f"said/{number}": line for number, line in enumerate(SAID.strip().splitlines())},
    **{f"format/{number}": line for number, line in enumerate(FORMATS.strip().splitlines())},
}
