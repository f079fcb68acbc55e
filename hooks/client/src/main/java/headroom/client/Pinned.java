package headroom.client;

import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Collection;
import java.util.List;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLSocketFactory;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * Trusts servers that show a scheduler's certificate of one authority, and nobody else: the machine's own authorities do
 * not count. Host names do not count either, because a certificate of Headroom names a role and a name.
 */
public final class Pinned extends X509ExtendedTrustManager {
  private static final String ROLE = "headroom://scheduler/";

  /** The kind of a URI among alternative names: RFC 5280, GeneralName. */
  private static final int URI = 6;

  private final X509ExtendedTrustManager chains;

  private Pinned(X509ExtendedTrustManager chains) {
    this.chains = chains;
  }

  /** Connects to schedulers of the authority whose certificate is in the file. */
  public static SSLSocketFactory by(String file) throws IOException {
    if (file.isEmpty()) {
      throw new IOException("https needs the file of the cluster's authority");
    }
    try (InputStream in = Files.newInputStream(Paths.get(file))) {
      KeyStore roots = KeyStore.getInstance(KeyStore.getDefaultType());
      roots.load(null, null);
      for (Certificate c : CertificateFactory.getInstance("X.509").generateCertificates(in)) {
        roots.setCertificateEntry("ca" + roots.size(), c);
      }
      if (roots.size() == 0) {
        throw new IOException(file + " holds no certificate");
      }
      TrustManagerFactory factory = TrustManagerFactory.getInstance("PKIX");
      factory.init(roots);
      SSLContext context = SSLContext.getInstance("TLSv1.3");
      X509ExtendedTrustManager chains = (X509ExtendedTrustManager) factory.getTrustManagers()[0];
      context.init(null, new TrustManager[] {new Pinned(chains)}, null);
      return context.getSocketFactory();
    } catch (GeneralSecurityException | IllegalArgumentException e) {
      throw new IOException(file + ": " + e.getMessage(), e);
    }
  }

  @Override
  public void checkServerTrusted(X509Certificate[] chain, String authType) throws CertificateException {
    chains.checkServerTrusted(chain, authType);
    Collection<List<?>> names = chain[0].getSubjectAlternativeNames();
    int uris = 0;
    boolean scheduler = false;
    if (names != null) {
      for (List<?> name : names) {
        if (Integer.valueOf(URI).equals(name.get(0))) {
          uris++;
          scheduler = String.valueOf(name.get(1)).startsWith(ROLE);
        }
      }
    }
    if (uris != 1 || !scheduler) {
      throw new CertificateException("the server's certificate is not a scheduler's");
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
    throw new CertificateException("clients are not served");
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
