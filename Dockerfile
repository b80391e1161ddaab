# One image for the operator and for workers: ENTRYPOINT is the operator, and
# `queue-worker` is on PATH.
ARG BASE_IMAGE=python:3.11-slim-bookworm

# The lock changes seldom and the source often, so what the lock brings has a stage of its own.
FROM ${BASE_IMAGE} AS deps
WORKDIR /src
COPY requirements-server.lock ./
# The build backend is pinned like everything else, and stays out of the image.
RUN python3 -m venv /opt/build \
 && printf '%s\n' 'setuptools==84.2.1 --hash=sha256:ca140b45d5325a9478f880e351484f62fef15f336462e449ca0c03c873d589c2' > /opt/build/requirements.lock \
 && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes --only-binary=:all: -r /opt/build/requirements.lock
RUN python3 -m venv --without-pip /opt/venv \
 && /opt/build/bin/pip --python /opt/venv/bin/python install --no-cache-dir \
        --disable-pip-version-check --require-hashes --only-binary=:all: \
        -r requirements-server.lock

FROM deps AS build
COPY . ./
# Installed apart, so that the layer of our own code is small.
RUN /opt/build/bin/pip wheel --no-cache-dir --disable-pip-version-check \
        --no-build-isolation --no-deps --wheel-dir /dist . \
 && /opt/build/bin/pip --python /opt/venv/bin/python install --no-cache-dir \
        --disable-pip-version-check --no-index --no-deps --prefix /opt/app /dist/*.whl

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="queue-operator" \
      org.opencontainers.image.description="A durable job queue for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=deps /opt/venv /opt/venv
COPY --from=build /opt/app /opt/venv
# The root file system may be read-only: nothing is compiled or cached at run time.
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /home/worker
USER 65532:65532
ENTRYPOINT ["queue-operator"]
