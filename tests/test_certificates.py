"""A certificate proves one peer's key, or is a CertificateError; nothing in between and nothing else."""

import datetime

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA224, SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from agentmesh.certificates import (
    EXTENSION,
    MAX_CERTIFICATE_BYTES,
    certify,
    make_certificate,
    peer_of_certificate,
)
from agentmesh.errors import CertificateError
from agentmesh.identity import Identity, encode_public_key, peer_of
from agentmesh.types import PeerId

# The test vectors of the libp2p specification "tls".
ED25519 = bytes.fromhex(
    "308201ae30820156a0030201020204499602d2300a06082a8648ce3d040302302031123010060355040a13096c69627032702e696f310a3008"
    "06035504051301313020170d3735303130313133303030305a180f34303936303130313133303030305a302031123010060355040a13096c69"
    "627032702e696f310a300806035504051301313059301306072a8648ce3d020106082a8648ce3d030107034200040c901d423c831ca85e27c7"
    "3c263ba132721bb9d7a84c4f0380b2a6756fd601331c8870234dec878504c174144fa4b14b66a651691606d8173e55bd37e381569ea37c307a"
    "3078060a2b0601040183a25a0101046a3068042408011220a77f1d92fedb59dddaea5a1c4abd1ac2fbde7d7b879ed364501809923d7c11b904"
    "40d90d2769db992d5e6195dbb08e706b6651e024fda6cfb8846694a435519941cac215a8207792e42849cccc6cd8136c6e4bde92a58c5e08cf"
    "d4206eb5fe0bf909300a06082a8648ce3d0403020346003043021f50f6b6c52711a881778718238f650c9fb48943ae6ee6d28427dc6071ae55"
    "e702203625f116a7a454db9c56986c82a25682f7248ea1cb764d322ea983ed36a31b77"
)
ECDSA = bytes.fromhex(
    "308201f63082019da0030201020204499602d2300a06082a8648ce3d040302302031123010060355040a13096c69627032702e696f310a3008"
    "06035504051301313020170d3735303130313133303030305a180f34303936303130313133303030305a302031123010060355040a13096c69"
    "627032702e696f310a300806035504051301313059301306072a8648ce3d020106082a8648ce3d030107034200040c901d423c831ca85e27c7"
    "3c263ba132721bb9d7a84c4f0380b2a6756fd601331c8870234dec878504c174144fa4b14b66a651691606d8173e55bd37e381569ea381c230"
    "81bf3081bc060a2b0601040183a25a01010481ad3081aa045f0803125b3059301306072a8648ce3d020106082a8648ce3d03010703420004bf"
    "30511f909414ebdd3242178fd290f093a551cf75c973155de0bb5a96fedf6cb5d52da7563e794b512f66e60c7f55ba8a3acf3dd72a801980d2"
    "05e8a1ad29f2044730450220064ea8124774caf8f50e57f436aa62350ce652418c019df5d98a3ac666c9386a022100aa59d704a931b5f72fb9"
    "222cb6cc51f954d04a4e2e5450f8805fe8918f71eaae300a06082a8648ce3d04030203470030440220799395b0b6c1e940a7e4484705f610ab"
    "51ed376f19ff9d7c16757cfbf61b8d4302206205c03fbb0f95205c779be86581d3e31c01871ad5d1f3435bcf375cb0e5088a"
)
SECP256K1 = bytes.fromhex(
    "308201ba3082015fa0030201020204499602d2300a06082a8648ce3d040302302031123010060355040a13096c69627032702e696f310a3008"
    "06035504051301313020170d3735303130313133303030305a180f34303936303130313133303030305a302031123010060355040a13096c69"
    "627032702e696f310a300806035504051301313059301306072a8648ce3d020106082a8648ce3d030107034200040c901d423c831ca85e27c7"
    "3c263ba132721bb9d7a84c4f0380b2a6756fd601331c8870234dec878504c174144fa4b14b66a651691606d8173e55bd37e381569ea3818430"
    "8181307f060a2b0601040183a25a01010471306f0425080212210206dc6968726765b820f050263ececf7f71e4955892776c0970542efd689d"
    "2382044630440220145e15a991961f0d08cd15425bb95ec93f6ffa03c5a385eedc34ecf464c7a8ab022026b3109b8a3f40ef833169777eb2aa"
    "337cfb6282f188de0666d1bcec2a4690dd300a06082a8648ce3d0403020349003046022100e1a217eeef9ec9204b3f774a08b70849646b6a1e"
    "6b8b27f93dc00ed58545d9fe022100b00dafa549d0f03547878338c7b15e7502888f6d45db387e5ae6b5d46899cef0"
)
MISMATCH = bytes.fromhex(
    "308201f73082019da0030201020204499602d2300a06082a8648ce3d040302302031123010060355040a13096c69627032702e696f310a3008"
    "06035504051301313020170d3735303130313133303030305a180f34303936303130313133303030305a302031123010060355040a13096c69"
    "627032702e696f310a300806035504051301313059301306072a8648ce3d020106082a8648ce3d030107034200040c901d423c831ca85e27c7"
    "3c263ba132721bb9d7a84c4f0380b2a6756fd601331c8870234dec878504c174144fa4b14b66a651691606d8173e55bd37e381569ea381c230"
    "81bf3081bc060a2b0601040183a25a01010481ad3081aa045f0803125b3059301306072a8648ce3d020106082a8648ce3d03010703420004bf"
    "30511f909414ebdd3242178fd290f093a551cf75c973155de0bb5a96fedf6cb5d52da7563e794b512f66e60c7f55ba8a3acf3dd72a801980d2"
    "05e8a1ad29f204473045022100bb6e03577b7cc7a3cd1558df0da2b117dfdcc0399bc2504ebe7de6f65cade72802206de96e2a5be9b6202adb"
    "a24ee0362e490641ac45c240db71fe955f2c5cf8df6e300a06082a8648ce3d0403020348003045022100e847f267f43717358f850355bdcabb"
    "efb2cfbf8a3c043b203a14788a092fe8db022027c1d04a2d41fd6b57a7e8b3989e470325de4406e52e084e34a3fd56eef0d0df"
)

NOON = datetime.datetime(2026, 3, 20, 12, tzinfo=datetime.UTC)
DAY = 86_400.0
NOW = NOON.timestamp()
ME = Identity.generate()
KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65537, 2048)
NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "any")])
CertificateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


def element(tag: int, contents: bytes) -> bytes:
    """DER, for contents of up to 64 KiB."""
    size = len(contents)
    length = bytes((size,)) if size < 0x80 else bytes((0x81, size)) if size < 0x100 else b"\x82" + size.to_bytes(2)
    return bytes((tag,)) + length + contents


def signed_key(public: bytes, signature: bytes) -> bytes:
    return element(0x30, element(0x04, public) + element(0x04, signature))


def proof(key: CertificateKey = KEY) -> bytes:
    """What the extension of a certificate for `key` must hold."""
    spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return signed_key(ME.public_key_bytes, ME.sign(b"libp2p-tls-handshake:" + spki))


@attrs.frozen
class Draft:
    """A certificate that proves ME, but for what a test makes wrong about it."""

    key: CertificateKey = KEY
    signer: CertificateKey | None = None
    digest: SHA256 | SHA384 | SHA224 | None = SHA256()
    issuer: x509.Name = NAME
    extension: bytes | None = None  # what libp2p's extension holds; when None, what it must
    critical: bool = False
    others: tuple[tuple[x509.ExtensionType, bool], ...] = ()

    def der(self) -> bytes:
        builder = (
            x509.CertificateBuilder(self.issuer, NAME, serial_number=7)
            .public_key(self.key.public_key())
            .not_valid_before(NOON - datetime.timedelta(days=1))
            .not_valid_after(NOON + datetime.timedelta(days=1))
        )
        for other, critical in self.others:
            builder = builder.add_extension(other, critical)
        value = proof(self.key) if self.extension is None else self.extension
        if value:
            builder = builder.add_extension(x509.UnrecognizedExtension(EXTENSION, value), self.critical)
        return builder.sign(self.signer or self.key, self.digest).public_bytes(Encoding.DER)


class TestSpecification:
    @pytest.mark.parametrize(
        ("der", "peer"),
        [
            (ED25519, "12D3KooWM6CgA9iBFZmcYAHA6A2qvbAxqfkmrYiRQuz3XEsk4Ksv"),
            (ECDSA, "QmfXbAwNjJLXfesgztEHe8HwgVDCMMpZ9Eax1HYq6hn9uE"),
            (SECP256K1, "16Uiu2HAkutTMoTzDw1tCvSRtu6YoixJwS46S1ZFxW8hSx9fWHiPs"),
        ],
    )
    def test_valid_certificates(self, der: bytes, peer: str) -> None:
        assert peer_of_certificate(der) == PeerId.parse(peer)

    def test_a_certificate_that_does_not_prove_what_it_claims(self) -> None:
        with pytest.raises(CertificateError):
            peer_of_certificate(MISMATCH)


class TestMade:
    def test_it_proves_its_identity(self) -> None:
        der, key = make_certificate(ME)
        assert peer_of_certificate(der) == ME.peer
        assert x509.load_der_x509_certificate(der).public_key() == key.public_key()
        assert key.curve.name == "secp256r1"

    def test_it_carries_that_one_extension(self) -> None:
        der, key = make_certificate(ME)
        (extension,) = x509.load_der_x509_certificate(der).extensions
        assert extension.oid.dotted_string == "1.3.6.1.4.1.53594.1.1"
        assert not extension.critical
        assert extension.value.public_bytes() == proof(key)

    def test_two_of_one_identity_share_nothing(self) -> None:
        one, other = (x509.load_der_x509_certificate(make_certificate(ME)[0]) for _ in range(2))
        assert one.serial_number != other.serial_number
        assert one.public_key() != other.public_key()

    def test_of_an_ed25519_key_all_are_of_one_length(self) -> None:
        made = [certify(ME, ed25519.Ed25519PrivateKey.generate(), now=NOW) for _ in range(32)]
        assert {peer_of_certificate(der, now=NOW) for der in made} == {ME.peer}
        assert len({len(der) for der in made}) == 1
        assert len({x509.load_der_x509_certificate(der).serial_number for der in made}) == 32

    @pytest.mark.parametrize(
        ("at", "valid"), [(-31 * DAY, False), (-29 * DAY, True), (0, True), (99 * 365 * DAY, True)]
    )
    def test_it_is_valid_for_clocks_that_are_late_and_for_long(self, at: float, valid: bool) -> None:
        der, _ = make_certificate(ME, now=NOW)
        if valid:
            assert peer_of_certificate(der, now=NOW + at) == ME.peer
        else:
            with pytest.raises(CertificateError, match="not valid at this time"):
                peer_of_certificate(der, now=NOW + at)


class TestAccepted:
    @pytest.mark.parametrize(
        "draft",
        [
            Draft(),
            Draft(critical=True),
            Draft(others=((x509.SubjectAlternativeName([x509.DNSName("x.example")]), False),)),
            Draft(key=ec.generate_private_key(ec.SECP384R1()), digest=SHA384()),
            Draft(key=ed25519.Ed25519PrivateKey.generate(), digest=None),
            Draft(key=RSA_KEY),
        ],
    )
    def test_other_implementations_make_it_so(self, draft: Draft) -> None:
        assert peer_of_certificate(draft.der(), now=NOW) == ME.peer

    def test_a_peer_with_a_long_key(self) -> None:
        key = rsa.generate_private_key(65537, 4096)
        spki = KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        signature = key.sign(b"libp2p-tls-handshake:" + spki, padding.PKCS1v15(), SHA256())
        value = signed_key(encode_public_key(key.public_key()), signature)
        assert peer_of_certificate(Draft(extension=value).der(), now=NOW) == peer_of(key.public_key())


class TestRefused:
    @pytest.mark.parametrize(
        ("draft", "says"),
        [
            (Draft(extension=b""), "without libp2p's extension"),
            (Draft(extension=proof(OTHER_KEY)), "not signed by the key in it"),
            (
                Draft(extension=signed_key(Identity.generate().public_key_bytes, bytes(64))),
                "not signed by the key in it",
            ),
            (Draft(extension=signed_key(b"\x08\x01", bytes(64))), "in libp2p's extension: a malformed public key"),
            (Draft(extension=signed_key(b"\x0a", bytes(64))), "in libp2p's extension"),
            (Draft(signer=OTHER_KEY), "not signed with its own key"),
            (Draft(issuer=x509.Name([])), "malformed"),
            (Draft(digest=SHA224()), "signed with sha224"),
            (Draft(others=((x509.BasicConstraints(ca=False, path_length=None), True),)), r"not known: 2\.5\.29\.19"),
            (
                Draft(others=((x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3"), b""), True),)),
                r"not known: 1\.2\.3",
            ),
        ],
    )
    def test_it_proves_nothing(self, draft: Draft, says: str) -> None:
        with pytest.raises(CertificateError, match=says):
            peer_of_certificate(draft.der(), now=NOW)

    @pytest.mark.parametrize("days", [-1.01, 1.01])
    def test_outside_its_time(self, days: float) -> None:
        with pytest.raises(CertificateError, match="not valid at this time"):
            peer_of_certificate(Draft().der(), now=NOW + days * DAY)

    @pytest.mark.parametrize(
        "value",
        [
            b"\x30",
            b"\x31" + proof()[1:],
            proof()[:-1],
            proof() + b"\x00",
            element(0x30, proof()[2:] + element(0x04, b"")),
            element(0x30, element(0x04, b"one")),
            element(0x30, element(0x04, b"one") + element(0x03, b"two")),
            b"\x30\x80" + proof()[2:] + b"\x00\x00",  # no end is given
            b"\x30\x81" + proof()[1:],  # a length that has a shorter spelling
            b"\x30\x82\x00" + proof()[1:],
            b"\x30\xff" + bytes(127),
            element(0x04, b"\x30" + proof()),
        ],
    )
    def test_an_extension_that_is_not_two_octet_strings_in_der(self, value: bytes) -> None:
        with pytest.raises(CertificateError, match="libp2p's extension"):
            peer_of_certificate(Draft(extension=value).der(), now=NOW)

    def test_a_serial_number_that_is_not_positive_is_no_warning_of_ours(self) -> None:
        der = Draft().der().replace(bytes.fromhex("020107"), bytes.fromhex("0201f7"))
        with pytest.raises(CertificateError, match="not signed with its own key"):
            peer_of_certificate(der, now=NOW)

    def test_a_signature_of_another_kind_than_the_key(self) -> None:
        with pytest.raises(CertificateError):
            peer_of_certificate(Draft(signer=RSA_KEY).der(), now=NOW)

    def test_two_statements_of_the_algorithm(self) -> None:
        ecdsa_with = bytes.fromhex("06082a8648ce3d0403")
        one, _, other = Draft().der().rpartition(ecdsa_with + b"\x02")
        with pytest.raises(CertificateError, match="malformed"):
            peer_of_certificate(one + ecdsa_with + b"\x03" + other, now=NOW)

    def test_one_extension_twice(self) -> None:
        der = Draft(
            others=((x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.53594.1.2"), b"x"), False),)
        ).der()
        twice = der.replace(bytes.fromhex("83a25a0102"), bytes.fromhex("83a25a0101"))
        with pytest.raises(CertificateError):
            peer_of_certificate(twice, now=NOW)

    def test_longer_than_any(self) -> None:
        with pytest.raises(CertificateError, match="too long"):
            peer_of_certificate(bytes(MAX_CERTIFICATE_BYTES + 1))

    @given(st.binary(max_size=200))
    def test_any_bytes(self, data: bytes) -> None:
        with pytest.raises(CertificateError):
            peer_of_certificate(data)

    @given(st.sampled_from([ED25519, ECDSA, SECP256K1, Draft().der()]), st.integers(0, 600), st.integers(1, 255))
    def test_one_byte_changed(self, der: bytes, at: int, change: int) -> None:
        """Every byte of a certificate is signed, or is the signature, or their frame."""
        unused_bits = len(der) - len(x509.load_der_x509_certificate(der).signature) - 1  # nobody minds a count of these
        at %= len(der) - 1
        data = bytearray(der)
        data[at + (at >= unused_bits)] ^= change
        with pytest.raises(CertificateError):
            peer_of_certificate(bytes(data), now=NOW)

    @given(st.sampled_from([ED25519, ECDSA, SECP256K1]), st.integers(0, 600))
    def test_cut_short(self, der: bytes, end: int) -> None:
        with pytest.raises(CertificateError):
            peer_of_certificate(der[: end % len(der)])

    @given(st.binary(max_size=150))
    def test_any_extension(self, value: bytes) -> None:
        with pytest.raises(CertificateError):
            peer_of_certificate(Draft(extension=value).der(), now=NOW)

    @given(st.integers(0, len(proof()) - 1), st.integers(1, 255))
    def test_one_byte_of_the_extension_changed(self, at: int, change: int) -> None:
        value = bytearray(proof())
        value[at] ^= change
        with pytest.raises(CertificateError):
            peer_of_certificate(Draft(extension=bytes(value)).der(), now=NOW)
