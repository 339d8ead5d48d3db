"""Maths, tables and prose in five languages in which nothing is secret."""

# ruff: noqa: E501 - texts are as wide as they are

MATHS = """
Let $f(x) = \\frac{{n:1}x^{n:1} + {n:1}{d:1}}{x - {n:1}}$. Then $\\lim_{x \\to \\infty} f(x)/x^2 = {n:1}.{d:3}$ and
$$\\int_0^{{n:1}} e^{-x^2}\\,dx \\approx 0.{d:12}, \\qquad \\pi \\approx 3.14159265358979323846264338327950288.$$
The number {n:1}{d:15} is the product of {n:1}{d:6} and {n:1}{d:7}; its square has {n:1}{d:1} digits.
"""
ARITHMETIC = """
{d:3} + {d:3} = {d:3}; {d:4} × {d:3} = {d:6}; ({d:2} - {d:1}) / {n:1} = {d:1}.{d:4}
2^{n:1}{d:1} = {n:1}{d:18}
1 234 567 890 people, 12 345 678 900 grains, {n:1} 000 000 000 bytes, 1,234,567,890.12
f(1), f(2), f(3) = 1.0000000000, 0.{d:16}, -{n:1}.{d:15}e-{d:2}
"""
TABLE = """
year,month,region,units,revenue,share
2024,01,north,{n:1}{d:3},{n:1}{d:5}.{d:2},0.{d:4}
2024,02,south,{n:1}{d:3},{n:1}{d:5}.{d:2},0.{d:4}
2025-11-{day},12:{d:2}:{d:2},{n:1}{d:2}.{d:1},{n:1}{d:6}
[[0.{d:8}, -0.{d:8}], [1.{d:8}, 2.{d:8}]]
"""
ENGLISH = """
The meeting of {n:1} March 2026 began at 10:{d:2} and ended at 12:30. Section 12.{n:1}.{n:1} of the report says that {n:1}{d:1}.{n:1} per cent of
the {d:4} people who were asked would rather walk. A password should have at least twelve characters, and no token of any kind should be
written on paper. The secret is to knead the dough for {n:1}{d:1} minutes; the key is patience. "Is the password wrong?" she asked. The bill came to
$1,{d:3}.{d:2}, order 2026-{d:6}, ISBN 978-3-16-148410-0.
"""
GERMAN = """
Die Sitzung vom {n:1}. März 2026 begann um 10:{d:2} Uhr und endete um 12.30 Uhr. Nach § 12 Abs. {n:1} Satz 2 BGB haften {n:1}{d:1},{n:1} Prozent der
{d:4} Befragten nicht. Ein Passwort soll mindestens zwölf Zeichen haben; das Passwort ist falsch, wenn die Feststelltaste gedrückt ist.
Das Geheimnis ist ein guter Sauerteig. Die Rechnung 2026-{d:5} beläuft sich auf 1.{d:3},{d:2} Euro, zahlbar bis zum {day}.{month}.2026.
Das Aktenzeichen lautet 4 O {d:3}/25. Der Schlüssel liegt unter der Matte.
"""
FRENCH = """
La réunion du {n:1} mars 2026 a commencé à 10 h {d:2} et s'est terminée à 12 h 30. Selon l'article L. {d:3}-{n:1} du code, {n:1}{d:1},{n:1} pour cent des
{d:1} {d:3} personnes interrogées préfèrent marcher. Le mot de passe doit comporter au moins douze caractères ; le mot de passe est incorrect.
Le secret est dans la pâte, et la clé du succès est la patience. La facture n° 2026-{d:5} s'élève à 1 {d:3},{d:2} euros.
"""
SPANISH = """
La reunión del {n:1} de marzo de 2026 empezó a las 10:{d:2} y terminó a las 12:30. Según el artículo {d:2}.{n:1} de la ley, el {n:1}{d:1},{n:1} por ciento de las
{d:4} personas encuestadas prefiere caminar. La contraseña debe tener al menos doce caracteres; la contraseña es incorrecta.
El secreto está en la masa y la clave es la paciencia. La factura 2026/{d:5} asciende a 1.{d:3},{d:2} euros.
"""
ITALIAN = """
La riunione del {n:1} marzo 2026 è iniziata alle 10:{d:2} ed è finita alle 12:30. Secondo l'articolo {d:2}, comma {n:1}, il {n:1}{d:1},{n:1} per cento delle
{d:4} persone intervistate preferisce camminare. La password deve avere almeno dodici caratteri; la password è sbagliata.
Il segreto sta nell'impasto e la chiave è la pazienza. La fattura n. {d:4}/2026 ammonta a 1.{d:3},{d:2} euro, protocollo {d:7}.
"""
MANUAL = """
## Authentication

Pass the API key in the `Authorization` header as `Bearer <token>`. Keys begin with `sk_` and are shown once. To rotate a key, call
`POST /v1/keys/{id}/rotate`. The `secret` parameter is required; `password` is optional (default: none). If you forgot your password, choose
"Forgot password?" and follow the link. Token limits: {n:1}{d:3} tokens per minute. See RFC {d:4}, version {n:1}.{d:1}.{d:2}.{n:1} or later.
Set `token: str` to the value of the environment variable. E.g. `export API_KEY=...`, and `password: "********"` in the logs.
"""
CHAT = """
user: How do I reset my password?
assistant: Open the settings, choose "Security", then "Change password". Your new password must differ from the last {n:1} ones.
user: It says that the token is invalid.
assistant: The token is valid for {d:2} minutes only. Ask for a new one; the code is sent by e-mail, and it has {n:1} digits.
user: Thanks! My order is number {d:8}.
"""
CHESS = """
[Date "2026.03.{day}"] [White "Carlsen"] [Black "Anand"] [ECO "C{d:2}"]
1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5 7. Bb3 d6 8. c3 O-O 9. h3 Na5 1-0
r1bq1rk1/2p1bppp/p1np1n2/1p2p3/4P3/1BP2N1P/PP1P1PP1/RNBQR1K1 b - - 0 {n:1}
"""
SCIENCE = """
>seq{d:4} Homo sapiens
ATGGCCCTGTGGATGCGCCTCCTGCCCCTGCTGGCGCTGCTGGCCCTCTGGGGACCTGACCCAGCCGCAGCCTTTGTGAACCAACACCTGTGCGGCTCACACCTGGTGG
Al2(SO4)3 + 6 NaOH → 2 Al(OH)3 + 3 Na2SO4, ΔH = -{d:3}.{d:1} kJ/mol; 47.{d:6}° N, 8.{d:6}° E; 6.62607015e-34 J s
doi:10.1{d:3}/s{d:5}-026-{d:5}-{n:1}, arXiv:2601.{d:5}v{n:1}, PMID {d:8}, CAS 7732-18-5
"""
TIMETABLE = """
IC {d:3}  Zürich HB  dep 08:{d:2}  platform {n:1}   Bern  arr 09:{d:2}
LX {d:4}  ZRH 07:{d:2} → LHR 08:{d:2}, terminal {n:1}, gate B{d:2}, seat {n:1}{n:1}C
FC Bayern 3:1 (1:0), {d:2}.{d:3} spectators; 100 m: 9.{d:2} s; 4 x 100 m: 37.{d:2} s; 6-4, 3-6, 7-6 (7-5)
"""
RECIPE = """
Heat the oven to {n:1}{d:1}0 °C (gas {n:1}). Mix 250 g flour, 1/2 tsp salt, {n:1} eggs and 125 ml milk; bake for 45-50 minutes. Part no. {upper:2}-{d:4}-{upper:1}{d:2},
size 42.5, batch L{d:6}, best before {day}/{month}/2027, EAN 4006381333931, tyres 205/55 R16 91V, bolt M8x{n:1}0 DIN 933.
"""
TEXT: dict[str, str] = {
    name.lower(): value for name, value in list(globals().items()) if name.isupper() and name != "TEXT"
}
