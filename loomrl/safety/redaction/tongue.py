"""Words for a password in thirty languages, and the words between them and one."""

import re

STEMS = (
    *("password", "passwd", "passwor", "pasword", "passwrd", "passphrase", "passcode", "passkey", "pwd", "psw"),  # English
    *("passwort", "passwör", "kennwort", "kennwör", "losungswort", "passphrase", "zugangscode", "geheimwort"),  # German
    *("mdp", "contraseñ", "contrasen", "senha", "palavra-passe", "wachtwoord", "paswoord"),  # French to Dutch
    *("lösenord", "losenord", "adgangskode", "kodeord", "passord", "salasana", "hasł", "haslo", "hesl", "lozin", "parol"),
    *("jelsz", "jelsó", "jelszav", "şifre", "sifre", "парол", "κωδικ", "κωδίκ", "συνθηματικ", "гасл"),
)
"""Beginnings of words for it in languages with letters, in folded case. Endings are free."""
ENDINGS = ("passwort", "kennwort", "wachtwoord", "lösenord", "passord", "adgangskode", "salasana")
"""Ends of words that are put together."""
ALONE = frozenset({"pw", "pass", "psk", "sandi", "pins", "geslo", "slaptažodis", "parool", "clau"})
"""Words that begin many others."""
PHRASES = {
    "passe": re.compile(r"\b(?:mots?\ de|palavra[ -]|palavras[ -])\ ?\Z", re.I),
    "phrase": re.compile(r"\bpass[ -]\Z", re.I),
    "word": re.compile(r"\bpass[ -]\Z", re.I),
    "code": re.compile(r"\b(?:pass|access|entry|secret)[ -]\Z", re.I),
    "secrète": re.compile(r"\bphrase\ \Z", re.I),
    "secret": re.compile(r"\bcode\ \Z", re.I),
    "accès": re.compile(r"\bcode\ d['’]\Z", re.I),
    "acceso": re.compile(r"\b(?:código|codigo|clave)\ de\ \Z", re.I),
    "accesso": re.compile(r"\bcodice\ di\ \Z", re.I),
    "ordine": re.compile(r"\bparola\ d['’]\Z", re.I),
    "chiave": re.compile(r"\bparola\ \Z|(?<!\w)la\ \Z", re.I),
    "clave": re.compile(r"(?<!\w)(?:la|mi|tu|su|nueva|una)\ \Z", re.I),
    "khẩu": re.compile(r"\bmật\ \Z", re.I),
    "πρόσβασησ": re.compile(r"κωδικός\ \Z", re.I),
}
"""Last words of phrases, with what stands before them."""
EASTERN = (
    *("كلمة المرور", "كلمة السر", "كلمه السر", "كلمة مرور", "كلمة سر", "הסיסמ", "סיסמ", "رمز عبور", "رمزعبور", "گذرواژه", "رمز"),
    *("पासवर्ड", "पासकोड", "パスワード", "暗証番号", "パスコード", "合言葉", "密码", "密碼", "口令", "비밀번호", "비번", "암호"),
    *("รหัสผ่าน", "พาสเวิร์ด", "รหัส", "پاس ورڈ", "পাসওয়ার্ড", "கடவுச்சொல்"),
)
"""Words in writing that has no spaces, or puts parts before words."""

IS_WORDS = """
    is was are be becomes became remains reads equals would will now still ist war lautet lautete heißt wäre wird sei bleibt
    est était c'est sera devient es era fue será sigue è era sarà resta é era foi será era is was wordt luidt är var blir
    lyder er var bliver blir lyder on oli kuuluu to jest był było brzmi je byl bylo zní bude az hogy volt lett lesz este
    era e rămâne glasi bio bila olan olarak это был была такой теперь це був такий це є тепер είναι ήταν η е беше са là
    adalah yaitu ialah ni
"""
TO_WORDS = """
    to into auf in zu en a à por em para no naar til till på i na u la în σε на إلى thành menjadi jadi ke po
"""
AS_WORDS = """
    as for als für comme como come som kao jako ca olarak как як като ως σαν sebagai làm för como por per mint
"""
CHANGES = (
    *("change", "set", "reset", "update", "ändern", "geändert", "gesetzt", "changé", "modifié", "cambi", "mud", "alter", "trocou"),
    *("verander", "gewijzigd", "ändra", "ändrat", "bytt", "ændre", "endre", "vaihdo", "zmieni", "změni", "zmenil", "megváltoz"),
    *("schimba", "promijeni", "değiştir", "yaptım", "измени", "поменя", "смен", "зміни", "άλλαξα", "đổi", "ubah", "ganti"),
)
"""Beginnings of words for changing one."""
TYPES = """
    type enter use try gib tippe eingeben tape saisis entrez écris escribe introduce digita inserisci digite insira typ skriv
    indtast wpisz zadej írd scrie upiši yaz введи набери въведи πληκτρολόγησε nhập ketik
"""
"""Words for typing one."""
USERS = """
    user username login usuario usuário utente utilisateur benutzer benutzername nutzer gebruiker användare bruger bruker
    käyttäjä użytkownik uživatel felhasználó utilizator korisnik kullanıcı логин логін пользователь користувач потребител
    χρήστης pengguna account konto compte cuenta conta id
"""
MINE = frozenset(
    "jelszavam jelszavad jelszava şifrem şifren şifresi parolam parolası salasanani salasanasi парольчик".split()
)
"""Words that say whose it is: what follows is the password, without a verb."""
WITH_WORDS = "with using and mit und avec et con y e ed com met en med och og ja z i s a și si cu ve ile с и з та και με и với dan dengan"
IN_WORDS = """
    log sign login logon signin connect authenticate logge melde anmelden einloggen einwählen verbinde connecte connectez
    identifie identifiez entra entre accede inicia conéctate accedi collegati entrare acesse faça inloggen aanmelden logga
    logg kirjaudu zaloguj loguj přihlas prihlas jelentkezz lépj conectează autentifică prijavi giriş зайди зайдите войди
    войдите залогинься вход увійди увійдіть συνδέσου влез masuk nhập
"""
ADJECTIVES = """
    wrong incorrect onjuist juist fout verkeerd kort lang leeg veilig onveilig vergeten gewijzigd verlopen nodig vereist ongeldig
    errada incorreta inválida correta curta longa fraca forte vazia segura obrigatória expirada esquecida diferente
    fel felaktigt felaktig rätt kort långt svagt starkt tomt säkert ogiltigt ogiltig glömt obligatoriskt ändrat samma
    forkert forkerte rigtig rigtigt kort lang svag stærk tom sikker ugyldig glemt påkrævet ændret samme nødvendig
    feil riktig kort langt svakt sterkt tomt sikkert ugyldig glemt påkrevd endret samme nødvendig
    väärä väärin oikea lyhyt pitkä heikko vahva tyhjä turvallinen virheellinen vanhentunut vaihdettu sama pakollinen
    nieprawidłowe błędne poprawne prawidłowe krótkie długie słabe silne puste bezpieczne wymagane zmienione wygasło takie
    nesprávné špatné správné krátké dlouhé slabé silné prázdné bezpečné neplatné povinné změněno stejné nesprávne
    helytelen hibás helyes rövid hosszú gyenge erős üres biztonságos érvénytelen lejárt kötelező
    greșită gresita corectă scurtă lungă slabă puternică goală sigură invalidă obligatorie expirată uitată
    netočna neispravna točna ispravna kratka duga slaba jaka prazna sigurna nevažeća obavezna istekla pogrešna
    yanlış hatalı doğru kısa uzun zayıf güçlü boş güvenli geçersiz gerekli zorunlu unutuldu değişti
    errónea erronea equivocada incorrecto incorrects incorrectes faible forte manquant identique différent sbagliato scorretta
    mancante diversa uguale falsch ungueltig salah benar pendek panjang lemah kuat kosong aman sai đúng ngắn dài yếu mạnh
    trống refused rejected denied accepted asked hidden shown sent saved required compromised weak reused protected encrypted good
"""
"""Words that are said of passwords, in languages whose letters passwords have, too."""
