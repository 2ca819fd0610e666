# The Escher service, with what traces are sent with: whether there are any is a setting, and no reason to build anew. What it
# does not use it does not import. Everything is installed from hashes, and there is no default for that of the base, so that nobody
# builds on what he has not looked at: docs/install.md says how to find it. The address of a package index is the builder's
# affair (--build-arg PIP_INDEX_URL=..., or none for the default one).
ARG BASE_DIGEST

FROM python:3.11-slim@${BASE_DIGEST} AS build
ARG PIP_INDEX_URL
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN python -m venv /build && /build/bin/pip install --require-hashes --no-deps --requirement requirements/build.txt \
    && python -m venv --without-pip /opt/escher \
    && /build/bin/pip --python /opt/escher install --require-hashes --no-deps --requirement requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY extender/ extender/
COPY kubesim/ kubesim/
COPY escher_k8s/ escher_k8s/
COPY scheduler-config/ scheduler-config/
COPY deploy/ deploy/
# No isolation and no index: what builds the wheel was installed from hashes above.
RUN /build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
    && /build/bin/pip --python /opt/escher install --no-deps --no-index /wheels/*.whl \
    && /opt/escher/bin/python -m compileall -q /opt/escher/lib

FROM python:3.11-slim@${BASE_DIGEST}
# A number, so that a pod's runAsNonRoot can be checked without looking into the image.
RUN useradd --uid 65532 --no-create-home --shell /usr/sbin/nologin escher
COPY --from=build /opt/escher /opt/escher
ENV PATH=/opt/escher/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["escher"]
# In a pod the service account is used. Other machines must reach it, unlike the default: with the certificate, key and
# clients' authority of a Secret of cert-manager (or one of the same keys) mounted here, and callers who show who they are.
CMD ["serve", "--host", "0.0.0.0", "--port", "8080", "--authorization", "kubernetes", \
     "--tls-certificate", "/etc/escher/tls/tls.crt", "--tls-key", "/etc/escher/tls/tls.key", \
     "--tls-client-ca", "/etc/escher/tls/ca.crt"]
