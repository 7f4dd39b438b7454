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

export interface TlsServer {
  readonly port: number;
  stop(): Promise<void>;
}

/** Speaks TLS in front of a server that does not. */
export async function startTls(targetPort: number): Promise<TlsServer> {
  const sockets = new Set<TLSSocket>();
  const server = createServer({ key, cert: certificate }, (socket) => {
    const target = connect(targetPort, "127.0.0.1");
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => target.destroy());
    target.on("error", () => {}).on("close", () => socket.destroy());
    socket.pipe(target).pipe(socket);
  });
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
