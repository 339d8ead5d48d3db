"""Words for a password in thirty languages, and the words around one. All are in folded case."""

import re

_STEMS = """
    password passwd passwor pasword passwrd passphrase passcode passkey pwd psw passwort passwör kennwort
    kennwör losungswort zugangscode geheimwort mdp contraseñ contrasen senha palavra-passe wachtwoord
    paswoord lösenord losenord adgangskode kodeord passord salasana hasł haslo hesl lozin parol jelsz jelsó
    jelszav şifre sifre парол κωδικ κωδίκ συνθηματικ гасл
"""
STEMS = tuple(_STEMS.split())
"""Beginnings of words for it in languages with letters; endings are free."""
_ENDINGS = """
    passwort kennwort wachtwoord lösenord passord adgangskode salasana
"""
ENDINGS = tuple(_ENDINGS.split())
"""Ends of words that are put together."""
_ALONE = """
    pins pw pass psk geslo slaptažodis parool clau sandi
"""
ALONE = frozenset(_ALONE.split())
"""Words for it that begin many others."""
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
_EASTERN = """
    كلمة المرور, كلمة السر, كلمه السر, كلمة مرور, كلمة سر, הסיסמ, סיסמ, رمز عبور, رمزعبور, گذرواژه, رمز,
    पासवर्ड, पासकोड, パスワード, 暗証番号, パスコード, 合言葉, 密码, 密碼, 口令, 비밀번호, 비번, 암호,
    รหัสผ่าน, พาสเวิร์ด, รหัส, پاس ورڈ, পাসওয়ার্ড, கடவுச்சொல்
"""
EASTERN = tuple(phrase.strip() for phrase in _EASTERN.replace("\n", " ").split(","))
"""Words in writing that has no spaces, or puts parts before words."""
_IS = """
    is was are be becomes became remains reads equals would will now still ist war lautet lautete heisst
    wäre wird sei bleibt est était c'est sera devient es era fue será sigue è sarà resta é foi wordt luidt
    är var blir lyder er bliver on oli kuuluu to jest był było brzmi je byl bylo zní bude az hogy volt lett
    lesz este e rămâne glasi bio bila olan olarak это был была такой теперь це був такий є тепер είναι ήταν
    η е беше са là adalah yaitu ialah ni
"""
IS = frozenset(f"{_IS} fi biti будет буде ще".split())
"""Forms of to be, and of verbs like it."""
_STILL = """
    always still now currently actually simply just immer noch jetzt nun aktuell derzeit einfach toujours encore
    actuellement
    siempre ahora actualmente todavía sempre ancora adesso attualmente agora atualmente altijd nog nu momenteel alltid
    fortfarande altid stadig fortsatt aina vielä nyt zawsze teraz obecnie vždy teď nyní mindig most jelenleg mereu acum
    uvijek sada hala şimdi всегда сейчас пока теперь завжди зараз πάντα τώρα винаги сега luôn selalu sekarang
"""
STILL = frozenset(_STILL.split())
"""Words between it and a verb: still, now."""
_MY = """
    my our her his their mein meine unser dein mon notre ton mi nuestra tu mia nostra tua minha nossa meu mijn ons onze
    jouw mitt vårt ditt min vores din moje mój moja můj az мой моя мій моят нашият
"""
MY = frozenset(_MY.split())
"""Words that say whose it is."""
_HAVE = """
    has have had hat habe hatte haben avait tiene tengo tenía tenemos ha ho aveva abbiamo tem tenho temos heeft
    heb hebben har
    havde hade mam mám máme imam ima
"""
HAVE = frozenset(_HAVE.split())
"""The router has the password …"""
_DEVICES = """
    wifi wi wlan vpn root admin ssh router server email mail gmail imap ftp sql mysql postgres windows netflix linux
    laptop pc
"""
DEVICES = frozenset(_DEVICES.split())
"""Password wifi …"""
_TO = """
    to into auf in zu en a à por em para no naar til till på i na u la în σε на إلى thành menjadi jadi ke po
"""
TO = frozenset(_TO.split())
"""Words before the new password: changed to …"""
_AS = """
    as for als für comme como come som kao jako ca olarak как як като ωσ σαν sebagai làm för por per mint
"""
AS = frozenset(_AS.split())
"""… as the password."""
_WITH = """
    with using and mit und avec et con y e ed com met en med och og ja z i s a și si cu ve ile с и з та και
    με với dan dengan
"""
WITH = frozenset(_WITH.split())
"""Log in as ada with …"""
_CHANGES = """
    change set reset update ändern geändert gesetzt changé modifié cambi mud alter trocou verander gewijzigd
    ändra ändrat bytt ændre endre vaihdo zmieni změni zmenil megváltoz schimba promijeni değiştir yaptım
    измени поменя смен зміни άλλαξα đổi ubah ganti
"""
CHANGES = tuple(_CHANGES.split())
"""Beginnings of words for changing one."""
_TYPES = """
    type enter use try gib tippe eingeben tape saisis entrez écris escribe introduce digita inserisci digite
    insira typ skriv indtast wpisz zadej írd scrie upiši yaz введи набери въведи πληκτρολόγησε nhập ketik
"""
TYPES = frozenset(_TYPES.split())
"""Words for typing one."""
_TAKES = """
    use using take put choose chose nimm nehme nutz benutz verwend utilis prend mets usa uso utiliz pon toma
    met mett gebruik neem använd brug bruk käyt użyj używ použ használ folos korist kullan исполь вз викорис
    χρησιμ изпол pakai dùng always immer toujours siempre sempre
    mis puse messo tog tok usei hab heb har mám поставил поставив beállít ustawi pus
"""
TAKES = tuple(_TAKES.split())
"""Beginnings of words for using one."""
_IN = """
    log sign login logon signin connect authenticate logge melde anmelden einloggen einwählen verbinde
    connecte connectez identifie identifiez entra entre accede inicia conéctate accedi collegati entrare
    acesse faça inloggen aanmelden logga logg kirjaudu zaloguj loguj přihlas prihlas jelentkezz lépj
    conectează autentifică prijavi giriş зайди зайдите войди войдите залогинься вход увійди увійдіть
    συνδέσου влез masuk nhập
"""
IN = frozenset(_IN.split())
"""Words for logging in."""
_USERS = """
    user username login usuario usuário utente utilisateur benutzer benutzername nutzer gebruiker användare
    bruger bruker käyttäjä użytkownik uživatel felhasználó utilizator korisnik kullanıcı логин логін
    пользователь користувач потребител χρήστησ pengguna account konto compte cuenta conta id
"""
USERS = frozenset(_USERS.split())
"""Words for a user's name."""
_MINE = """
    şifresi jelszavam jelszava şifren parolası parolam парольчик şifrem jelszavad salasanani salasanasi
"""
MINE = frozenset(_MINE.split())
"""Words that say whose it is: what follows is the password, without a verb."""
_ADJECTIVES = """
    mitt ditt mina dina mine dine mein dein mijn jouw meine mia tua moje twoje moja tvoja
    wrong incorrect onjuist juist fout verkeerd kort lang leeg veilig onveilig vergeten gewijzigd verlopen
    nodig vereist ongeldig errada incorreta inválida correta curta longa fraca forte vazia segura
    obrigatória expirada esquecida diferente fel felaktigt felaktig rätt långt svagt starkt tomt säkert
    ogiltigt ogiltig glömt obligatoriskt ändrat samma forkert forkerte rigtig rigtigt svag stærk tom sikker
    ugyldig glemt påkrævet ændret samme nødvendig feil riktig langt svakt sterkt sikkert påkrevd endret
    väärä väärin oikea lyhyt pitkä heikko vahva tyhjä turvallinen virheellinen vanhentunut vaihdettu sama
    pakollinen nieprawidłowe błędne poprawne prawidłowe krótkie długie słabe silne puste bezpieczne wymagane
    zmienione wygasło takie nesprávné špatné správné krátké dlouhé slabé silné prázdné bezpečné neplatné
    povinné změněno stejné nesprávne helytelen hibás helyes rövid hosszú gyenge erős üres biztonságos
    érvénytelen lejárt kötelező greșită gresita corectă scurtă lungă slabă puternică goală sigură invalidă
    obligatorie expirată uitată netočna neispravna točna ispravna kratka duga slaba jaka prazna sigurna
    nevažeća obavezna istekla pogrešna yanlış hatalı doğru kısa uzun zayıf güçlü boş güvenli geçersiz
    gerekli zorunlu unutuldu değişti errónea erronea equivocada incorrecto incorrects incorrectes faible
    manquant identique différent sbagliato scorretta mancante diversa uguale falsch ungueltig salah benar
    pendek panjang lemah kuat kosong aman sai đúng ngắn dài yếu mạnh trống refused rejected denied accepted
    asked hidden shown sent saved required compromised weak reused protected encrypted good
"""
ADJECTIVES = frozenset(_ADJECTIVES.split())
"""Words that are said of passwords, in languages whose letters passwords have, too."""
_PARTS = """
    first half part begin start erste hälfte teil anfang beginn premi moitié partie commenc début primer
    mitad parte empiez comienz prima metà inizi metade começ eerst helft deel första hälften første halv
    perv перв полови начин част перш połow pierws polov první
"""
PARTS = tuple(_PARTS.split())
"""Beginnings of words for a part of something, and the first one."""
_RESTS = """
    second other rest then end part last half goes continu follow zweite dann ende teil letzte weiter deuxi
    seconde autre suite puis fin segund otra resto luego termin acab seconda altra poi finisc outra depois
    tweede andere laatste andra anden andre resten slutar slutter втор дальше конец кінец друг решт остат
    drug potem druh zbytek
"""
RESTS = tuple(_RESTS.split())
"""Beginnings of words for what comes after it."""
_ASKS = """
    what which enter type tell give send need next wie welch lautet nenn sag gib schick gleich quel donne
    envoi saisi prochain cuál cual dime dame envía qual dimmi dammi invi diga envie welk geef vilket vad
    hvad hva hvilk mikä jakie podaj jaké zadej care mi koja ne как пришл введи скаж який ποιοσ ποιο каква
    apa là
"""
ASKS = tuple(_ASKS.split())
"""Beginnings of words that ask for something, or promise it."""
_REPLIES = """
    this certo it כן it's يا never doch danke nu это thank hi vale use klar ok obrigado evet c'est так hello
    हाँ okay what dziękuję d'accord help sì ist later לא όχι नहीं дякую both exactly tomorrow its da is sim
    who sorry it’s không ano done why peut-être today grazie yes here claro sí neither да yeah yep thanks
    sure oui це ไม่ nie não спасибо correct forse ใช่ nope jag hayır when maybe nein ja いいえ ні bitte because
    tack si one no конечно děkuji tidak tak لا 是 nej merci right voici joo ναι es 不是 はい είναι talvez hey ya
    có please that's nem nothing нет non igen quizás kiitos 네 none vielleicht نعم gracias 아니요
"""
REPLIES = frozenset(_REPLIES.split())
"""Words that answers begin with, or are."""
