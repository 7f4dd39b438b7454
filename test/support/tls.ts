import { once } from "node:events";
import { type AddressInfo, connect } from "node:net";
import { createServer, type TLSSocket } from "node:tls";

/** Made for these tests and used nowhere else; valid for 127.0.0.1 from 2020 to 2120. */
const key = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgBmXW7cSeq10fXvuQ
FZYP9a1btpOfwbYURNHKN2vspZKhRANCAATkPeE06dLvfYtQ/lxBr322V3E2johl
o2ZnqcaCp6VQBWqlQ1dpmUlzWL139bd6IxwmPSI9FSQxtifmThfFRVBv
-----END PRIVATE KEY-----`;

/** It signed itself, and so is its own authority. */
export const certificate = `-----BEGIN CERTIFICATE-----
MIIBWzCCAQKgAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAkxMjcuMC4w
LjEwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CTEyNy4wLjAuMTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABOQ94TTp0u99i1D+
XEGvfbZXcTaOiGWjZmepxoKnpVAFaqVDV2mZSXNYvXf1t3ojHCY9Ij0VJDG2J+ZO
F8VFUG+jQzBBMA8GA1UdEQQIMAaHBH8AAAEwDwYDVR0TAQH/BAUwAwEB/zAdBgNV
HQ4EFgQUHnKOwH5ZPnyUAAifQyaXIGGFvXUwCgYIKoZIzj0EAwIDRwAwRAIgON45
OJ1WtA/JhjGjGyGqiX8Exe3PNAiXOWbKLwuo444CIFQhptZN1afrTly6hm+noYCI
0FtTP44SdJFHXVAwEdkN
-----END CERTIFICATE-----`;

const nameKey = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgLJg/YEkChkDol9MJ
uvTjqV3lneJKT4BIDDaUnvrvA6ahRANCAARXbw1bDkZCfAieIwOcR+j6k0BRCVsl
6PrkEAJmmKR7s0hvHup8K/Y343g9Soqbu8Ft4F5kpPR+49PuF8rSD8cF
-----END PRIVATE KEY-----`;

/** For the name `localhost`, and for no address. */
export const nameCertificate = `-----BEGIN CERTIFICATE-----
MIIBYTCCAQegAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv
c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFdvDVsORkJ8CJ4j
A5xH6PqTQFEJWyXo+uQQAmaYpHuzSG8e6nwr9jfjeD1Kipu7wW3gXmSk9H7j0+4X
ytIPxwWjSDBGMBQGA1UdEQQNMAuCCWxvY2FsaG9zdDAPBgNVHRMBAf8EBTADAQH/
MB0GA1UdDgQWBBRhBYG/Y2EO+SLTldwcZTEQ3nKYwjAKBggqhkjOPQQDAgNIADBF
AiEAid2Xkw3nAZZcqi0ZdFZGhQ9d1iPvk26JaQud3EN6rKoCIEudkzqEBNOS64++
Pxib929HMBA43A+JN4NENxqTKF46
-----END CERTIFICATE-----`;

export interface TlsOptions {
  /** @defaultValue `address` */
  readonly of?: "address" | "name";
  /** Whether a client must show a certificate that this one has signed. */
  readonly asksClients?: boolean;
}

export interface TlsServer {
  readonly port: number;
  stop(): Promise<void>;
}

/** Speaks TLS in front of a server that does not. */
export async function startTls(
  targetPort: number,
  { of = "address", asksClients = false }: TlsOptions = {},
): Promise<TlsServer> {
  const sockets = new Set<TLSSocket>();
  const [own, cert] = of === "name" ? [nameKey, nameCertificate] : [key, certificate];
  const options = { key: own, cert, ca: cert, requestCert: asksClients };
  const server = createServer(options, (socket) => {
    const target = connect(targetPort, "127.0.0.1");
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => target.destroy());
    target.on("error", () => {}).on("close", () => socket.destroy());
    socket.pipe(target).pipe(socket);
  });
  // A client that is refused makes an error of the server.
  server.on("tlsClientError", () => {});
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    stop: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
