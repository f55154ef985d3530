//! Two ends in one process: members of one field, and strangers.

use super::*;
use proptest::prelude::*;

fn key(byte: u8) -> FieldKey {
    FieldKey::new([byte; 32])
}

fn ring(bytes: &[u8]) -> KeyRing {
    KeyRing::new(bytes.iter().map(|byte| key(*byte))).unwrap()
}

/// Hands over all that one side has to say, a record at a time.
fn pass(from: &mut Handshake, to: &mut Handshake) -> Result<usize, HandshakeError> {
    let bytes = from.output();
    let mut rest = &bytes[..];
    while let Some(head) = rest.first_chunk() {
        let (record, later) = rest.split_at(Handshake::record_length(head)?);
        to.receive(record)?;
        rest = later;
    }
    Ok(bytes.len())
}

fn meet(dialling: &mut Handshake, answering: &mut Handshake) -> Result<usize, HandshakeError> {
    let mut bytes = 0;
    while !(dialling.is_done() && answering.is_done()) {
        bytes += pass(dialling, answering)? + pass(answering, dialling)?;
    }
    assert!(dialling.output().is_empty() && answering.output().is_empty(), "nothing follows a handshake");
    Ok(bytes)
}

/// Sends a word through a channel.
fn said(from: &mut Channel, to: &mut Channel, word: &[u8]) -> Vec<u8> {
    from.sealer.seal(word).unwrap();
    let mut record = from.sealer.waiting().to_vec();
    from.sealer.sent(record.len());
    let length = record.len();
    let content = to.opener.open(&mut record, 0..length).unwrap();
    record[..content].to_vec()
}

#[test]
fn members_meet_by_any_key_that_both_have() {
    for known in [&[1][..], &[2, 1], &[1, 2, 3]] {
        let (mut one, mut other) = (Handshake::dial(&key(1)), Handshake::answer(ring(known)));
        let bytes = meet(&mut one, &mut other).unwrap();
        assert!(bytes < HANDSHAKE_MAX / 4, "{bytes} bytes");
        let (mut one, mut other) = (one.finish().unwrap(), other.finish().unwrap());
        assert_eq!((one.key, other.key), (key(1).id(), key(1).id()));
        assert_eq!(said(&mut one, &mut other, b"a question"), b"a question");
        assert_eq!(said(&mut other, &mut one, b"an answer"), b"an answer");
    }
}

#[test]
fn a_channel_outlives_its_keys_in_both_directions() {
    let (mut one, mut other) = (Handshake::dial(&key(1)), Handshake::answer(ring(&[1])));
    meet(&mut one, &mut other).unwrap();
    let (mut one, mut other) = (one.finish().unwrap(), other.finish().unwrap());
    let (mut there, mut back) = (0, 0);
    // Four keys each way, since those of tests last for 64 records.
    for number in 0..250_u8 {
        let (question, answer) = ([number; 9], [number; 9000]);
        there += passed(&mut one, &mut other, &question);
        back += passed(&mut other, &mut one, &answer);
    }
    assert_eq!((there, back), (3, 3));
}

/// Sends a word through a channel; returns the number of empty records that came with it.
fn passed(from: &mut Channel, to: &mut Channel, word: &[u8]) -> usize {
    from.sealer.seal(word).unwrap();
    let mut bytes = from.sealer.waiting().to_vec();
    from.sealer.sent(bytes.len());
    let (mut at, mut heard, mut empty) = (0, Vec::new(), 0);
    while let Some(head) = bytes[at..].first_chunk() {
        let length = record::length(head).unwrap();
        let content = to.opener.open(&mut bytes[at..], 0..length).unwrap();
        heard.extend_from_slice(&bytes[at..at + content]);
        empty += usize::from(content == 0);
        at += length;
    }
    assert_eq!(heard, word);
    empty
}

#[test]
fn a_stranger_is_left_without_a_word() {
    let (mut stranger, mut member) = (Handshake::dial(&key(9)), Handshake::answer(ring(&[1, 2])));
    assert_eq!(pass(&mut stranger, &mut member), Err(HandshakeError::Stranger));
    assert!(member.output().is_empty());
}

#[test]
fn an_overheard_knock_opens_nothing() {
    // A stranger with a knock that it overheard, and its own key behind it.
    let name = ServerName::try_from(knock(&key(1), [4; 8])).unwrap();
    let connection = ClientConnection::new(Arc::new(client(&key(9), Arc::default())), name).unwrap();
    let mut stranger = Handshake { state: State::Proving(connection.into(), key(9).id(), Arc::default()), taken: 0 };
    let mut member = Handshake::answer(ring(&[1]));
    pass(&mut stranger, &mut member).unwrap();
    assert_eq!(pass(&mut member, &mut stranger), Err(HandshakeError::Stranger), "the dialling side verifies");
    assert!(!member.is_done());

    // The same by a stranger that accepts any peer.
    #[derive(Debug)]
    struct Anybody;
    impl ServerCertVerifier for Anybody {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(never())
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    }
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]).unwrap();
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody));
    let own = identity(&key(9)).0;
    for config in [
        builder.clone().with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own))),
        builder.with_no_client_auth(),
    ] {
        let name = ServerName::try_from(knock(&key(1), [4; 8])).unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stranger =
            Handshake { state: State::Proving(connection.into(), key(9).id(), Arc::default()), taken: 0 };
        let mut member = Handshake::answer(ring(&[1]));
        let met = meet(&mut stranger, &mut member);
        assert!(met.is_err() && !member.is_done(), "{met:?}");
    }
}

#[test]
fn a_greeting_in_the_clear_is_told_from_a_record() {
    assert_eq!(Handshake::record_length(b"VFIEL"), Err(HandshakeError::NotTls));
    assert_eq!(Handshake::record_length(b"GET /"), Err(HandshakeError::NotTls));
    assert_eq!(Handshake::record_length(&[22, 3, 1, 255, 255]), Err(HandshakeError::NotTls));
}

proptest! {
    #[test]
    fn any_first_record_is_refused_without_a_panic(body in prop::collection::vec(any::<u8>(), 1..600)) {
        let mut member = Handshake::answer(ring(&[1]));
        let length = (body.len() as u16).to_be_bytes();
        let record = [&[22, 3, 1], &length[..], &body].concat();
        let _ = member.receive(&record);
        prop_assert!(!member.is_done() && member.output().is_empty());
    }

    #[test]
    fn a_changed_bit_anywhere_ends_it(at in 0_usize..1200, bit in 0_u8..8) {
        let (mut one, mut other) = (Handshake::dial(&key(1)), Handshake::answer(ring(&[1])));
        let (mut seen, mut noticed, mut matters) = (0, false, false);
        for turn in 0..6 {
            let (from, to) = if turn % 2 == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
            let bytes = from.output();
            let mut rest = &bytes[..];
            while let Some(head) = rest.first_chunk().filter(|_| !noticed) {
                let (record, later) = rest.split_at(Handshake::record_length(head).unwrap());
                let mut record = record.to_vec();
                if let Some(byte) = at.checked_sub(seen).and_then(|at| record.get_mut(at)) {
                    *byte ^= 1 << bit;
                    // Type and version in a record's head need not be looked at (RFC 8446, sections
                    // 5.1 and 5.2).
                    matters = at - seen > 2;
                }
                let length = record.first_chunk().map(Handshake::record_length);
                noticed = length != Some(Ok(record.len())) || to.receive(&record).is_err();
                seen += record.len();
                rest = later;
            }
        }
        let met = one.is_done() && other.is_done();
        prop_assert!(!(met && matters) && (met || at < seen), "bit {bit} of byte {at} of {seen}, noticed: {noticed}");
    }
}
