package headroom.client;

import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.KeySpec;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * Trusts only servers with a scheduler certificate of one CA: this machine's CAs do not count. Host names do not count
 * either, because a certificate of Headroom contains a role and a name. A client that shows a certificate trusts masters
 * too; those of earlier versions have scheduler certificates.
 */
public final class Pinned extends X509ExtendedTrustManager {
  private static final String SCHEDULER = "headroom://scheduler/";
  private static final String MASTER = "headroom://master/";

  private static final Pattern PRIVATE_KEY = Pattern.compile("-----BEGIN PRIVATE KEY-----([^-]+)-----END PRIVATE KEY-----");

  /** The kind of a URI among alternative names: RFC 5280, GeneralName. */
  private static final int URI = 6;

  private final X509ExtendedTrustManager chains;
  private final boolean masters;

  private Pinned(X509ExtendedTrustManager chains, boolean masters) {
    this.chains = chains;
    this.masters = masters;
  }

  /** Connects to schedulers of the CA whose certificate is in the file. */
  public static PinnedFiles by(String file) throws IOException {
    return by(file, "", "");
  }

  /**
   * Like {@link #by(String)}, with a client certificate: PEM files of the chain and of the key, in PKCS #8; "" for
   * none.
   */
  public static PinnedFiles by(String file, String certificate, String key) throws IOException {
    return new PinnedFiles(file, certificate, key);
  }

  /** Reads the files of {@link #by(String, String, String)}. */
  static SSLSocketFactory read(String file, String certificate, String key) throws IOException {
    if (file.isEmpty()) {
      throw new IOException("https needs the file of the cluster's CA");
    }
    KeyManager[] own = certificate.isEmpty() ? null : own(certificate, key);
    Collection<? extends Certificate> authority = certificates(file);
    try {
      KeyStore roots = KeyStore.getInstance(KeyStore.getDefaultType());
      roots.load(null, null);
      for (Certificate c : authority) {
        roots.setCertificateEntry("ca" + roots.size(), c);
      }
      TrustManagerFactory factory = TrustManagerFactory.getInstance("PKIX");
      factory.init(roots);
      SSLContext context = SSLContext.getInstance("TLSv1.3");
      X509ExtendedTrustManager chains = (X509ExtendedTrustManager) factory.getTrustManagers()[0];
      context.init(own, new TrustManager[] {new Pinned(chains, own != null)}, null);
      return context.getSocketFactory();
    } catch (GeneralSecurityException e) {
      throw new IOException(file + ": " + e.getMessage(), e);
    }
  }

  private static Collection<? extends Certificate> certificates(String file) throws IOException {
    try (InputStream in = Files.newInputStream(Paths.get(file))) {
      Collection<? extends Certificate> all = CertificateFactory.getInstance("X.509").generateCertificates(in);
      if (all.isEmpty()) {
        throw new IOException(file + " contains no certificate");
      }
      return all;
    } catch (CertificateException | IllegalArgumentException e) {
      throw new IOException(file + ": " + e.getMessage(), e);
    }
  }

  private static KeyManager[] own(String certificate, String key) throws IOException {
    Certificate[] chain = certificates(certificate).toArray(new Certificate[0]);
    try {
      Matcher pem = PRIVATE_KEY.matcher(new String(Files.readAllBytes(Paths.get(key)), StandardCharsets.US_ASCII));
      if (!pem.find()) {
        throw new IOException(key + " contains no PRIVATE KEY");
      }
      KeySpec spec = new PKCS8EncodedKeySpec(Base64.getMimeDecoder().decode(pem.group(1)));
      KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
      store.load(null, null);
      store.setKeyEntry("own", KeyFactory.getInstance(chain[0].getPublicKey().getAlgorithm()).generatePrivate(spec), new char[0], chain);
      KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
      factory.init(store, new char[0]);
      return factory.getKeyManagers();
    } catch (GeneralSecurityException | IllegalArgumentException e) {
      throw new IOException(key + ": " + e.getMessage(), e);
    }
  }

  @Override
  public void checkServerTrusted(X509Certificate[] chain, String authType) throws CertificateException {
    chains.checkServerTrusted(chain, authType);
    Collection<List<?>> names = chain[0].getSubjectAlternativeNames();
    int uris = 0;
    boolean trusted = false;
    if (names != null) {
      for (List<?> name : names) {
        if (Integer.valueOf(URI).equals(name.get(0))) {
          uris++;
          String who = String.valueOf(name.get(1));
          trusted = who.startsWith(SCHEDULER) || masters && who.startsWith(MASTER);
        }
      }
    }
    if (uris != 1 || !trusted) {
      throw new CertificateException("the server's certificate is not a " + (masters ? "master's" : "scheduler's"));
    }
  }

  @Override
  public void checkServerTrusted(X509Certificate[] chain, String authType, Socket socket) throws CertificateException {
    checkServerTrusted(chain, authType);
  }

  @Override
  public void checkServerTrusted(X509Certificate[] chain, String authType, SSLEngine engine) throws CertificateException {
    checkServerTrusted(chain, authType);
  }

  @Override
  public void checkClientTrusted(X509Certificate[] chain, String authType) throws CertificateException {
    throw new CertificateException("clients are not accepted");
  }

  @Override
  public void checkClientTrusted(X509Certificate[] chain, String authType, Socket socket) throws CertificateException {
    checkClientTrusted(chain, authType);
  }

  @Override
  public void checkClientTrusted(X509Certificate[] chain, String authType, SSLEngine engine) throws CertificateException {
    checkClientTrusted(chain, authType);
  }

  @Override
  public X509Certificate[] getAcceptedIssuers() {
    return chains.getAcceptedIssuers();
  }
}
