# A container with furca. Build: docker build -t furca . Run: doc/operations.md says which flags give which guarantee, for example
#   docker run --rm -it --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined furca
# tests/dockerfile.sh runs these very steps in a root of its own, without Docker.
FROM debian:bookworm AS build
COPY . /src
WORKDIR /src
RUN ./bootstrap build --prefix=/usr
RUN make -s -C build install DESTDIR=/out

FROM debian:bookworm
RUN apt-get update -q && apt-get install -y -q --no-install-recommends bash python3 python3-venv python3-packaging python3-pip libpython3.11 liburing2 libcap2 libseccomp2 libjansson4 libsqlite3-0 libmsgpackc2 ca-certificates && rm -rf /var/lib/apt/lists/*
COPY --from=build /out /
RUN ldconfig && furca --version
ENTRYPOINT ["furca"]
CMD ["doctor"]
