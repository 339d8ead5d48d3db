"""Lines in thirty languages and in many formats in which nothing is secret: held out, written before there were rules for them."""

# ruff: noqa: E501 - texts are as wide as they are, in the letters of their languages

SAID = """
What makes a good password?
A password is a string of characters that proves who you are.
The password was reset by the administrator last week.
Passwords expire after {n:1}{d:1} days.
She asked for the password twice and got no answer.
My password doesn't work any more, can you help?
Don't use the same password everywhere.
Sign in with your Google account or as a guest.
The token is invalid or has expired.
The key is not to give up.
The PIN must have {n:1} digits.
Choose a password that you do not use elsewhere.
Das Kennwort wurde gestern vom Administrator zurückgesetzt.
Wähle ein Kennwort, das du sonst nirgends benutzt.
Mein Passwort funktioniert nicht mehr.
Der Schlüssel ist nicht verloren, er liegt auf dem Tisch.
Wie lautet das Sprichwort noch gleich?
Die Geheimzahl steht nicht auf der Karte.
Le mot de passe a été réinitialisé hier par l'administrateur.
Choisissez un mot de passe que vous n'utilisez pas ailleurs.
La clé est sous le paillasson.
Quel est le mot juste ?
La contraseña fue restablecida ayer por el administrador.
Elija una contraseña que no use en otro sitio.
La clave está en los detalles.
La password è stata reimpostata ieri dall'amministratore.
Scegli una password che non usi altrove.
La chiave è sul tavolo.
A senha foi redefinida ontem pelo administrador.
Esqueci a minha senha, o que faço?
Het wachtwoord is gisteren door de beheerder gewijzigd.
Ik ben mijn wachtwoord vergeten.
Lösenordet måste innehålla minst åtta tecken.
Jag har glömt mitt lösenord.
Adgangskoden skal være på mindst otte tegn.
Jeg har glemt passordet mitt.
Salasanan on oltava vähintään kahdeksan merkkiä pitkä.
Unohdin salasanani.
Hasło musi mieć co najmniej osiem znaków.
Zapomniałem hasła, co mam zrobić?
Heslo musí mít alespoň osm znaků.
Zapomněl jsem heslo.
A jelszónak legalább nyolc karakterből kell állnia.
Elfelejtettem a jelszavamat.
Parola trebuie să aibă cel puțin opt caractere.
Am uitat parola.
Lozinka mora imati najmanje osam znakova.
Zaboravio sam lozinku.
Şifre en az sekiz karakter olmalıdır.
Şifremi unuttum, ne yapmalıyım?
Пароль должен содержать не менее восьми символов.
Я забыл пароль, что делать?
Пароль має містити щонайменше вісім символів.
Я забув пароль.
Ο κωδικός πρέπει να έχει τουλάχιστον οκτώ χαρακτήρες.
Ξέχασα τον κωδικό μου.
Паролата трябва да е поне осем знака.
يجب أن تتكون كلمة المرور من ثمانية أحرف على الأقل.
نسيت كلمة المرور.
הסיסמה חייבת להכיל לפחות שמונה תווים.
שכחתי את הסיסמה שלי.
رمز عبور باید حداقل هشت نویسه باشد.
पासवर्ड कम से कम आठ अक्षरों का होना चाहिए।
मैं अपना पासवर्ड भूल गया हूँ।
パスワードは八文字以上でなければなりません。
パスワードを変更してください。
密码必须至少包含八个字符。
我忘记了密码，怎么办？
비밀번호는 8자 이상이어야 합니다.
비밀번호를 잊어버렸어요.
Mật khẩu phải có ít nhất tám ký tự.
Tôi quên mật khẩu rồi.
Kata sandi harus terdiri dari minimal delapan karakter.
Saya lupa kata sandi.
รหัสผ่านต้องมีอย่างน้อยแปดตัวอักษร
ฉันลืมรหัสผ่าน
"""
FORMATS = """
[{"type": "function", "function": {"name": "add", "arguments": "{\\"a\\": {n:1}{d:2}, \\"b\\": {d:3}}"}}]
{"log": "{\\"level\\": \\"info\\", \\"text\\": \\"retry {d:1} of {n:1}\\"}"}
curl "https://{host}/v1/items?filter=name%3D%22{word}%22&sort=-date"
&lt;p&gt;Tom &amp;amp; Jerry&nbsp;&mdash; {n:1}&#37; off&lt;/p&gt;
全角の数字は１２３４５と書きます。
バージョン：２．{d:1}　更新日：２０２６年{n:1}月
if (!user.checkPassword(password)) throw new AuthError("bad password");
signIn(email, password).then(() => navigate("/home"));
assert verify_password(plain, hashed)
log("{user}", "{word}")
copy("{word}.csv", "{word}.bak")
db.query("SELECT name FROM {word} WHERE id = ?", {d:3})
window.login = function (name, secret) { return null; };
self.assertEqual(parse("{word}", "{word}"), {d:2})
1.234.567.{d:3}.{d:3}.{d:3}
GTIN {d:13}
{n:1}{d:3}|{d:4}|{d:4}|{d:4}
{n:1}{d:3}, {d:4}, {d:4}, {d:4}
{n:1}{d:3}\\t{d:4}\\t{d:4}\\t{d:4}
00:{d:2}:{d:2}:{d:2} --> 00:{d:2}:{d:2}:{d:2}
etag: "{hex:32}"
integrity sha512-{b64:86}==
git show {hex:12}
request {uuid} took {n:1}{d:2} ms
The concert is at eight, the dot on the map is org-anised badly.
Look at point four, then at dot five.
I am at {word} with {user}.
Nous sommes au point de départ, chez nous.
{day}.{month}.2026 um 14.{d:2} Uhr, Zimmer 0{d:2}
06:25:01.{d:3} WARN [worker-{d:1}] queue is at {n:1}{d:1} %
docker run -p 8080:80 -w /app {word}:latest
tar -xzf {word}.tar.gz -C /tmp
grep -w password README.md
ls -a {word} && cd {word}
<input type="password" name="password" placeholder="Password">
&lt;input type=&quot;password&quot; required&gt;
"password_policy": {"min_length": {n:1}{d:1}}
export PASSWORD_FILE=/run/secrets/db
token = tokenizer.decode(ids[{d:1}])
$x_{n:1} = {d:1}.{d:4}$ and $\\\\alpha = 0.{d:3}$
temperature=0.{d:1} top_p=0.{d:2} seed={d:5}
{n:1}{d:2} 000 000 000 000 000 bytes
ISBN 978-3-16-148410-0, DOI 10.{d:4}/{word}.{d:4}
{d:1}.{d:2} {d:1}.{d:2} {d:1}.{d:2} {d:1}.{d:2} {d:1}.{d:2}
"""
TEXTS = {
    **{f"said/{number}": line for number, line in enumerate(SAID.strip().splitlines())},
    **{f"format/{number}": line for number, line in enumerate(FORMATS.strip().splitlines())},
}
