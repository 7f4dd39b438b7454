import { once } from "node:events";
import { type AddressInfo, connect } from "node:net";
import { createServer, type TLSSocket } from "node:tls";

/** Made for these tests and used nowhere else; valid for 127.0.0.1 from 2020 to 2120. */
const key = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg1FJc7JKnnF0tX71m
ISImHLzThfmyRfaUxrL/XpobvvehRANCAAR6z6Q1e299YtlfbAJ3o9b+ZvMvGAaC
5JaKiSW9qMVNGE1lQMUUPraGums9wQz8eT0RnlnBYmqTNlG+ZHC3hGhj
-----END PRIVATE KEY-----`;

/** It signed itself, and so is its own authority. */
export const certificate = `-----BEGIN CERTIFICATE-----
MIIBkTCCATagAwIBAgIUWdUhc2+6fEHZjZY9Y0o7dX4QOSYwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJMTI3LjAuMC4xMCAXDTI2MTEyMjAwMDkzNFoYDzIxMjYxMDI5
MDAwOTM0WjAUMRIwEAYDVQQDDAkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAAR6z6Q1e299YtlfbAJ3o9b+ZvMvGAaC5JaKiSW9qMVNGE1lQMUUPraG
ums9wQz8eT0RnlnBYmqTNlG+ZHC3hGhjo2QwYjAdBgNVHQ4EFgQUHSOPlQNvbEvc
rgHZXEXoJtWXOSQwHwYDVR0jBBgwFoAUHSOPlQNvbEvcrgHZXEXoJtWXOSQwDwYD
VR0TAQH/BAUwAwEB/zAPBgNVHREECDAGhwR/AAABMAoGCCqGSM49BAMCA0kAMEYC
IQCy0Lc1QE3nTIWCMFCJmxpKfMGtT3HbUkEoCBZ1gmB4egIhANDttjPKGZp5VCfx
9Ucxd5WHt+HVlGpaRKgeF2eRDv27
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
