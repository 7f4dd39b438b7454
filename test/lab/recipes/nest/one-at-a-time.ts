import {
  type CallHandler,
  type CanActivate,
  type ExecutionContext,
  Inject,
  Injectable,
  type NestInterceptor,
  UnauthorizedException,
} from "@nestjs/common";
import { from, lastValueFrom, type Observable } from "rxjs";
import { SubmitLock } from "submit-lock";

/** A guard of Nest's, behind which the request has a user. Yours verifies a token. */
@Injectable()
export class SignedIn implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const request = context.switchToHttp().getRequest();
    request.user = request.headers["x-user-id"];
    if (!request.user) throw new UnauthorizedException();
    return true;
  }
}

/** The lock alone, where only a guard of Nest's knows the user. */
@Injectable()
export class OneAtATime implements NestInterceptor {
  @Inject(SubmitLock) private readonly lock!: SubmitLock;

  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    const { user } = context.switchToHttp().getRequest();
    return from(
      this.lock.withLock(user, () => lastValueFrom(next.handle(), { defaultValue: undefined })),
    );
  }
}
